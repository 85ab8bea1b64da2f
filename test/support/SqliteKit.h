#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "store/OwnedBackend.h"
#include "store/SqliteBackend.h"
#include "store/StoreBackend.h"
#include "support/StoreUnits.h"
#include "support/TempDir.h"
#include "util/Clock.h"

namespace test_support {

// What the tests of the SQLite backend have in common: requests, and a backend to send them to.

using store_test::kSecondUs;

inline constexpr int64_t kLeaseUs = 30 * kSecondUs;

// A clock that the test sets. Its wall clock shows what the test wants, and the backend takes it
// for a clock that the system does not know.
class SetClock : public workflow::Clock {
 public:
  int64_t now_ns() override { return us * 1000; }
  int64_t now_ns_on(workflow::ClockId) override { return us * 1000; }

  std::atomic<int64_t> us{1'000'000 * kSecondUs};
};

inline workflow::StoreRequest make_request(decltype(workflow::StoreRequest::what) what,
                                           uint64_t number = 0, uint64_t session = 1) {
  workflow::StoreRequest request;
  request.what = std::move(what);
  request.id = {number == 0 ? 0 : session, number};
  return request;
}

inline workflow::ScheduleRequest schedule(const std::string& name, int64_t due_us,
                                          WFTimerPolicy policy = WF_TIMER_APPEND) {
  workflow::ScheduleRequest request;
  request.spec.name = name;
  request.spec.kind = "kind";
  request.spec.payload = "payload of " + name;
  request.due_us = due_us;
  request.policy = policy;
  return request;
}

inline workflow::CancelRequest cancel(const std::string& name, size_t max = SIZE_MAX) {
  workflow::CancelRequest request;
  request.name = name;
  request.max = max;
  return request;
}

inline workflow::RescheduleRequest reschedule(const std::string& name, int64_t due_us) {
  workflow::RescheduleRequest request;
  request.name = name;
  request.due_us = due_us;
  return request;
}

inline workflow::ClaimRequest claim(size_t max = 100, int64_t lease_us = kLeaseUs) {
  workflow::ClaimRequest request;
  request.kinds.push_back({"kind", max, max});
  request.owner = "owner";
  request.lease_us = lease_us;
  request.fresh_us = kSecondUs;
  return request;
}

inline workflow::FinishRequest finish(
    const workflow::RunId& run,
    workflow::FinishRequest::How how = workflow::FinishRequest::How::kDone,
    int64_t next_us = workflow::kNeverUs) {
  workflow::FinishRequest request;
  request.run = run;
  request.how = how;
  request.next_us = next_us;
  return request;
}

// Sends one request and returns it with its answer.
template <class WHAT>
WHAT carry_out(workflow::StoreBackend& backend, WHAT what, uint64_t number = 0,
               uint64_t session = 1, workflow::StoreFailure* failure = nullptr) {
  workflow::StoreRequest request = make_request(std::move(what), number, session);
  workflow::StoreRequest* const list[] = {&request};
  backend.execute(list);
  if (failure) {
    *failure = request.failure;
  }
  return std::get<WHAT>(std::move(request.what));
}

inline workflow::StoreBackendOptions options_of(workflow::Clock& clock, uint64_t session = 1) {
  workflow::StoreBackendOptions options;
  options.clock = &clock;
  options.session = session;
  return options;
}

// Opens a store. Returns null if that fails, and stores why in *message.
inline std::unique_ptr<workflow::SqliteBackend> open_backend(
    const std::string& path, const workflow::StoreBackendOptions& options,
    const workflow::SqliteSettings& settings = {}, std::string* message = nullptr,
    int* error = nullptr) {
  int own_error = 0;
  std::string own_message;
  return workflow::SqliteBackend::open(path, options, settings, error ? error : &own_error,
                                       message ? message : &own_message);
}

// Opens a store of that layout.
inline std::unique_ptr<workflow::StoreBackend> open_layout(
    workflow::SqliteLayout layout, const std::string& path,
    const workflow::StoreBackendOptions& options, const workflow::SqliteSettings& settings = {},
    std::string* message = nullptr, int* error = nullptr) {
  if (layout == workflow::SqliteLayout::kShared) {
    return open_backend(path, options, settings, message, error);
  }
  int own_error = 0;
  std::string own_message;
  return workflow::OwnedBackend::open(path, options, settings, error ? error : &own_error,
                                      message ? message : &own_message);
}

// Facts that hold for both layouts.
class LayoutTest : public testing::TestWithParam<workflow::SqliteLayout> {
 protected:
  static std::unique_ptr<workflow::StoreBackend> open_backend(
      const std::string& path, const workflow::StoreBackendOptions& options,
      const workflow::SqliteSettings& settings = {}, std::string* message = nullptr,
      int* error = nullptr) {
    return open_layout(GetParam(), path, options, settings, message, error);
  }
};

// Used for the names of cases by INSTANTIATE_TEST_SUITE_P.
inline std::string layout_name(const testing::TestParamInfo<workflow::SqliteLayout>& info) {
  return info.param == workflow::SqliteLayout::kOwned ? "Owned" : "Shared";
}
inline auto sqlite_layouts() {
  return testing::Values(workflow::SqliteLayout::kShared, workflow::SqliteLayout::kOwned);
}

}  // namespace test_support

namespace workflow {
inline void PrintTo(SqliteLayout layout, std::ostream* out) {
  *out << (layout == SqliteLayout::kOwned ? "owned" : "shared");
}
}  // namespace workflow

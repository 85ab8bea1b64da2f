#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/FaultVfs.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"

// The power is lost right after an answer, for each kind of request that changes something.
// SqliteFaults loses it at random moments of random histories.

namespace test_support {
namespace {

using How = workflow::FinishRequest::How;
using workflow::RunId;
using workflow::StoreBackend;
using workflow::StoreRequest;

constexpr int64_t kLaterUs = 1000 * kSecondUs;

struct Change {
  const char* name;
  std::function<StoreRequest(int64_t now_us, const RunId& running)> request;
  // A store with one owner does not sync it before it is answered, but with the next request that a
  // user makes.
  bool is_of_a_run = false;
};

StoreRequest finish_request(const RunId& run, How how, int64_t next_us = workflow::kNeverUs) {
  workflow::FinishRequest request = finish(run, how, next_us);
  request.reason = how == How::kFailed ? "reason" : "";
  return make_request(request);
}

StoreRequest request_for_failed(bool remove) {
  workflow::FailedRequest request;
  request.name = "failed";
  request.remove = remove;
  return make_request(request, 100);
}

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"schedule",
       [](int64_t now_us, const RunId&) { return make_request(schedule("new", now_us), 100); }},
      {"replace",
       [](int64_t now_us, const RunId&) {
         return make_request(schedule("waiting", now_us, WF_TIMER_REPLACE), 100);
       }},
      {"replace of a running one",
       [](int64_t now_us, const RunId&) {
         return make_request(schedule("running", now_us, WF_TIMER_REPLACE), 100);
       }},
      {"cancel", [](int64_t, const RunId&) { return make_request(cancel("waiting"), 100); }},
      {"cancel of a running one",
       [](int64_t, const RunId&) { return make_request(cancel("running"), 100); }},
      {"reschedule",
       [](int64_t now_us, const RunId&) {
         return make_request(reschedule("waiting", now_us + kSecondUs), 100);
       }},
      {"reschedule of a running one",
       [](int64_t now_us, const RunId&) {
         return make_request(reschedule("running", now_us + kSecondUs), 100);
       }},
      {"retry of a failed one", [](int64_t, const RunId&) { return request_for_failed(false); }},
      {"removal of a failed one", [](int64_t, const RunId&) { return request_for_failed(true); }},
      {"claim", [](int64_t, const RunId&) { return make_request(claim(1)); }, true},
      {"acknowledgement",
       [](int64_t, const RunId& running) { return finish_request(running, How::kDone); }, true},
      {"retry",
       [](int64_t now_us, const RunId& running) {
         return finish_request(running, How::kRetry, now_us + kSecondUs);
       },
       true},
      {"failure",
       [](int64_t, const RunId& running) { return finish_request(running, How::kFailed); }, true},
  };
  return all;
}

class SqlitePower : public LayoutTest {
 protected:
  // What a store has from which the power is taken.
  enum class Until { kBefore, kChange, kNextRequest };

  static bool is_owned() { return GetParam() == workflow::SqliteLayout::kOwned; }

  // Plays the change in a new store, or what comes before it, or also a request after it.
  static void play(StoreBackend& backend, const Change& change, Until until) {
    const int64_t now_us = backend.now_us();
    carry_out(backend, schedule("running", now_us), 1);
    carry_out(backend, schedule("failed", now_us), 2);
    carry_out(backend, schedule("waiting", now_us + kLaterUs), 3);
    const auto claimed = carry_out(backend, claim(2)).claimed;
    ASSERT_EQ(claimed.size(), 2U);
    ASSERT_EQ(claimed[0].spec.name, "running");
    EXPECT_TRUE(carry_out(backend, finish(claimed[1].run, How::kFailed)).accepted);
    carry_out(backend, schedule("due", now_us), 4);
    if (until == Until::kBefore) return;
    StoreRequest request = change.request(now_us, claimed[0].run);
    StoreRequest* const requests[] = {&request};
    EXPECT_TRUE(backend.execute(requests));
    EXPECT_EQ(request.failure.error, 0) << request.failure.message;
    if (until == Until::kNextRequest) {
      carry_out(backend, schedule("last", now_us + kLaterUs), 101);
    }
  }

  // All that a user can see of a store. The leases of an owner are over when it is opened again.
  std::string look(const std::string& path) {
    std::string message;
    const auto backend = open_backend(path, options_of(clock_), settings_, &message);
    if (!backend) return message;
    std::string seen;
    workflow::ListRequest list;
    list.max = 100;
    for (const WFStoreInfo& info : carry_out(*backend, list).timers) {
      seen += info.name + " " + std::to_string(static_cast<int>(info.stage)) + " " +
              std::to_string(info.attempts) + " " +
              std::to_string(info.due.time_since_epoch().count()) + " " + info.payload +
              info.reason + "; ";
    }
    // One that was cancelled while it ran does not run again.
    clock_.us += 2 * kLeaseUs;
    for (const auto& claimed : carry_out(*backend, claim()).claimed) {
      seen += "run of " + claimed.spec.name + " " + std::to_string(claimed.attempts) + "; ";
    }
    clock_.us -= 2 * kLeaseUs;
    for (const char* const name : {"waiting", "running", "failed", "due"}) {
      for (const WFStoreAnswer& answer : carry_out(*backend, cancel(name)).answers) {
        seen += std::to_string(static_cast<int>(answer.verdict)) + " " +
                std::to_string(answer.attempts) + " " +
                std::to_string(static_cast<int>(answer.outcome)) + ", ";
      }
    }
    return seen;
  }

  // What is there if nothing goes wrong.
  std::string expected(const Change& change, Until until) {
    const FastDir directory;
    const std::string path = directory.path("timers");
    play(*open_backend(path, options_of(clock_), settings_), change, until);
    return look(path);
  }

  // What is there after the loss of power.
  std::string left(const Change& change, Until until, uint64_t seed) {
    const FastDir before;
    const FastDir after;
    const std::string path = before.path("timers");
    FaultVfs vfs;
    EXPECT_TRUE(open_backend(path, options_of(clock_), settings_));
    vfs.adopt(path);
    workflow::SqliteSettings settings = settings_;
    settings.base_vfs = vfs.name();
    const auto backend = open_backend(path, options_of(clock_), settings);
    play(*backend, change, until);
    TestRandom random(seed);
    vfs.write_image(after.path("."), random);
    return look(after.path("timers"));
  }

  SetClock clock_;
  const workflow::SqliteSettings settings_ = [] {
    workflow::SqliteSettings settings;
    settings.reserve_bytes = 4096;  // many stores are made
    return settings;
  }();
};

TEST_P(SqlitePower, ALossRightAfterAnAnswerTakesNothingBack) {
  constexpr uint64_t kRounds = 4;
  const uint64_t seed = test_seed();
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.name);
    const std::string before = expected(change, Until::kBefore);
    const std::string changed = expected(change, Until::kChange);
    const std::string later = expected(change, Until::kNextRequest);
    EXPECT_NE(before, changed);
    for (uint64_t round = 0; round < kRounds && !HasFailure(); round++) {
      SCOPED_TRACE("WORKFLOW_TEST_SEED=" + std::to_string(seed + round));
      const std::string found = left(change, Until::kChange, seed + round);
      if (is_owned() && change.is_of_a_run) {
        EXPECT_TRUE(found == changed || found == before) << found;
        EXPECT_EQ(left(change, Until::kNextRequest, seed + round), later);
      } else {
        EXPECT_EQ(found, changed);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, SqlitePower, sqlite_layouts(), layout_name);

}  // namespace
}  // namespace test_support

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "kernel/Simulation.h"
#include "store/BackendKit.h"
#include "store/StoreBackend.h"
#include "support/Tally.h"

namespace {

using store_test::SetClock;
using workflow::CancelRequest;
using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::kUsPerSec;
using workflow::ScheduleRequest;
using workflow::Simulation;
using workflow::StoreBackend;
using workflow::StoreBackendOptions;
using workflow::StoreRequest;

class MemoryBackend : public testing::Test {
 protected:
  std::unique_ptr<StoreBackend> open(const std::string& name,
                                     std::function<void()> changed = nullptr, bool create = true) {
    StoreBackendOptions options;
    options.create = create;
    options.clock = &clock_;
    options.session = 1;
    options.changed = std::move(changed);
    return workflow::open_memory_backend(name, options, &error_, &message_);
  }

  template <class WHAT>
  WHAT ask(StoreBackend& backend, WHAT what, const WFStoreRequestId& id = {}) {
    StoreRequest request;
    request.id = id;
    request.what = std::move(what);
    StoreRequest* const requests[] = {&request};
    EXPECT_TRUE(backend.execute(requests));
    failure_ = request.failure;
    return std::get<WHAT>(request.what);
  }

  ScheduleRequest schedule_request(int64_t delay_us) const {
    ScheduleRequest request;
    request.spec = {"a", "kind", "", "", -1};
    request.due_us = clock_.now_us() + delay_us;
    return request;
  }

  uint64_t count(StoreBackend& backend) { return ask(backend, workflow::CountRequest()).count; }

  ClaimRequest claim(StoreBackend& backend) {
    ClaimRequest request;
    request.kinds = {{"kind", 9, 9}};
    request.lease_us = 30 * kUsPerSec;
    return ask(backend, request);
  }

  SetClock clock_;
  workflow::StoreFailure failure_;  // of the last request
  int error_ = 0;
  std::string message_;
};

TEST_F(MemoryBackend, StoresOfOneNameAreOne) {
  const auto first = open("one");
  const auto second = open("one");
  const auto other = open("other");
  ask(*first, schedule_request(0));
  EXPECT_EQ(count(*second), 1U);
  EXPECT_EQ(count(*other), 0U);
}

TEST_F(MemoryBackend, StoreIsFreedWhenTheLastOneIsClosed) {
  auto first = open("freed");
  ask(*first, schedule_request(0));
  auto second = open("freed");
  first->close();
  EXPECT_EQ(count(*second), 1U);
  first = open("freed");
  EXPECT_EQ(count(*first), 1U);
  first->close();
  second.reset();
  EXPECT_EQ(count(*open("freed")), 0U);
}

TEST_F(MemoryBackend, NameMustNotBeEmpty) {
  EXPECT_EQ(open(""), nullptr);
  EXPECT_EQ(error_, EINVAL);
  EXPECT_NE(message_, "");
}

TEST_F(MemoryBackend, OpensNothingNewIfNotAllowedTo) {
  EXPECT_EQ(open("missing", nullptr, false), nullptr);
  EXPECT_EQ(error_, ENOENT);
  EXPECT_NE(message_, "");
  const auto created = open("missing");
  EXPECT_NE(open("missing", nullptr, false), nullptr);
}

TEST_F(MemoryBackend, ReceiptSaysMemory) {
  EXPECT_EQ(open("receipt")->receipt().level, WFStoreReceipt::kMemory);
}

TEST_F(MemoryBackend, TimeIsThatOfTheWallClockRoundedDown) {
  clock_.set_us(SetClock::kStartUs, 999);
  EXPECT_EQ(open("time")->now_us(), SetClock::kStartUs);
}

TEST_F(MemoryBackend, OthersAreToldOfTimersThatAreDueSoon) {
  int told = 0;
  int told_itself = 0;
  const auto backend = open("told", [&told_itself] { ++told_itself; });
  const auto other = open("told", [&told] { ++told; });
  ask(*backend, schedule_request(1'100'001));
  EXPECT_EQ(told, 0);
  ask(*backend, schedule_request(1'100'000));
  EXPECT_EQ(told, 1);
  workflow::RescheduleRequest request;
  request.name = "a";
  request.due_us = clock_.now_us();
  ask(*backend, request);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(told_itself, 0);
}

TEST_F(MemoryBackend, OthersAreToldOfRetriesCancelsAndSuccessors) {
  int told = 0;
  const auto backend = open("told", nullptr);
  const auto other = open("told", [&told] { ++told; });
  ask(*backend, schedule_request(0));
  ClaimRequest::Claimed run = claim(*backend).claimed.at(0);
  EXPECT_EQ(told, 1);

  FinishRequest retry;
  retry.run = run.run;
  retry.how = FinishRequest::How::kRetry;
  retry.next_us = clock_.now_us();
  ask(*backend, retry);
  EXPECT_EQ(told, 2);

  run = claim(*backend).claimed.at(0);
  ScheduleRequest successor = schedule_request(0);
  successor.policy = WF_TIMER_REPLACE;
  ask(*backend, successor);
  EXPECT_EQ(told, 2);
  CancelRequest cancel;
  cancel.name = "a";
  cancel.max = 1;
  ask(*backend, cancel);
  EXPECT_EQ(told, 3);

  FinishRequest acknowledgement;
  acknowledgement.run = run.run;
  ask(*backend, acknowledgement);
  EXPECT_EQ(told, 4);
}

TEST_F(MemoryBackend, NobodyIsToldAfterItHasClosed) {
  std::atomic<bool> closed{false};
  test_support::Tally calls;
  auto other = open("closed", [&closed, &calls] {
    EXPECT_FALSE(closed);
    calls.add();
  });
  std::atomic<bool> ends{false};
  std::thread scheduler([this, &ends] {
    const auto backend = open("closed");
    while (!ends) {
      ask(*backend, schedule_request(0));
    }
  });
  EXPECT_TRUE(calls.wait_for(1));
  other->close();
  closed = true;
  ends = true;
  scheduler.join();
}

// The store cannot know whether it is a new session.
TEST_F(MemoryBackend, ASessionThatWasDroppedAndComesBackDeniesNothingThatItHasAsked) {
  const auto backend = open("sessions");
  ask(*backend, schedule_request(0), {1, 1});
  for (uint64_t session = 2; session <= 1001; session++) {
    ask(*backend, schedule_request(0), {session, 1});
  }
  const auto found = [&](const WFStoreRequestId& id) {
    workflow::AskRequest request;
    request.asked = id;
    return ask(*backend, request).found;
  };
  EXPECT_FALSE(found({1, 1}));
  EXPECT_EQ(failure_.error, ENODATA);
  ask(*backend, schedule_request(0), {1, 5});
  EXPECT_FALSE(found({1, 1}));
  EXPECT_EQ(failure_.error, ENODATA);
  EXPECT_TRUE(found({1, 5}));
  EXPECT_FALSE(found({1, 6}));
  EXPECT_EQ(failure_.error, 0);
}

// Two workers and a canceller of one store, in an order that the seed decides: each timer is
// either claimed once or cancelled.
TEST_F(MemoryBackend, SimulationHasStoresOfItsOwnAndSchedulesTheirLocks) {
  const auto outside = open("simulated");
  ask(*outside, schedule_request(0));
  size_t most_claimed = 0;
  size_t most_cancelled = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    size_t claimed = 0;
    size_t cancelled = 0;
    Simulation simulation(seed, {});
    const auto backend = open("simulated");
    EXPECT_EQ(count(*backend), 0U);
    for (int i = 0; i < 4; ++i) {
      ask(*backend, schedule_request(0));
    }
    for (int worker = 0; worker < 2; ++worker) {
      simulation.spawn([this, &claimed] {
        const auto mine = open("simulated");
        claimed += claim(*mine).claimed.size();
      });
    }
    simulation.spawn([this, &cancelled] {
      const auto mine = open("simulated");
      for (const WFStoreAnswer& answer : ask(*mine, CancelRequest{"a", 2, {}}).answers) {
        cancelled += answer.verdict == WFStoreVerdict::kWon ? 1 : 0;
      }
    });
    EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
    EXPECT_EQ(claimed + cancelled, 4U) << "seed " << seed;
    most_claimed = std::max(most_claimed, claimed);
    most_cancelled = std::max(most_cancelled, cancelled);
  }
  EXPECT_EQ(count(*outside), 1U);
  EXPECT_EQ(most_claimed, 4U);
  EXPECT_EQ(most_cancelled, 2U);
}

}  // namespace

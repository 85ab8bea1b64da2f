#include "store/OwnedState.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "support/Sanitizers.h"
#include "support/SqliteKit.h"

// How the journal of a store with one owner is kept short.

namespace {

using test_support::kSecondUs;
using workflow::OwnedState;
using workflow::StoreRequest;

constexpr int64_t kNowUs = 1'000'000 * kSecondUs;

// A state whose journal is not kept anywhere.
class OwnedStateJournal : public testing::Test {
 protected:
  OwnedStateJournal() { state_.set_now(kNowUs); }

  template <class WHAT>
  WHAT carry_out(WHAT what) {
    StoreRequest request = test_support::make_request(std::move(what));
    EXPECT_TRUE(state_.carry_out(request, true));
    return std::get<WHAT>(std::move(request.what));
  }
  // Asks whether the request was carried out. Returns the error.
  static int ask(OwnedState& state, uint64_t session, uint64_t number) {
    workflow::AskRequest ask;
    ask.asked = {session, number};
    StoreRequest request = test_support::make_request(ask);
    EXPECT_TRUE(state.carry_out(request, true));
    return request.failure.error;
  }
  // Returns how many bytes were appended.
  size_t append() {
    state_.write();
    const size_t bytes = state_.journal().written_bytes();
    state_.journal().appended();
    return bytes;
  }
  int64_t bytes() { return state_.journal().bytes(); }

  OwnedState state_{0};
};

TEST_F(OwnedStateJournal, LongerLeasesDoNotMakeItGrow) {
  for (int i = 0; i < 1000; i++) {
    carry_out(test_support::schedule("tea", kNowUs));
  }
  append();
  workflow::ExtendRequest extend;
  for (const auto& claimed : carry_out(test_support::claim(1000)).claimed) {
    extend.runs.push_back(claimed.run);
  }
  ASSERT_EQ(extend.runs.size(), 1000U);
  size_t appended = append();
  // As many as fill the journal several times.
  constexpr int kTimes = test_support::kSanitized ? 250 : 1000;
  for (int i = 1; i <= kTimes; i++) {
    extend.lease_us = test_support::kLeaseUs + i;
    carry_out(extend);
    appended += append();
    // A few times 1 MiB, which may be there without counting.
    ASSERT_LT(bytes(), 4'000'000) << "after " << i;
  }
  EXPECT_GT(appended, size_t{kTimes} * 20'000);
}

// So much in one group that the rows of the group itself should be dropped.
TEST_F(OwnedStateJournal, WhatIsBeingWrittenIsNotWrittenAgain) {
  constexpr size_t kPassing = 2048;
  const auto pass = [this] {
    for (size_t i = 0; i < kPassing; i++) {
      std::string name = std::to_string(i);
      name.resize(1024, 'x');
      carry_out(test_support::schedule(name, kNowUs));
      carry_out(test_support::cancel(name));
    }
  };
  pass();
  size_t appended = append();  // nothing in it counts
  EXPECT_GT(appended, kPassing * 1024);
  EXPECT_LT(appended, kPassing * 1200);
  append();
  carry_out(test_support::schedule("tea", kNowUs));
  append();
  pass();
  appended = append();  // with the record of a timer, which counts
  EXPECT_GT(appended, kPassing * 1024);
  EXPECT_LT(appended, kPassing * 1200);
  carry_out(test_support::schedule("coffee", kNowUs));
  append();
  EXPECT_EQ(state_.counters().stored, 2U);
}

// The sessions that were used last keep their answers, and not all sessions keep many.
TEST_F(OwnedStateJournal, TheAnswersOfAllSessionsAreBounded) {
  constexpr uint64_t kRemembered = 100;
  constexpr uint64_t kSessions = 50;
  OwnedState state(kRemembered);
  state.set_now(kNowUs);
  for (uint64_t session = 1; session <= kSessions; session++) {
    state.know_session(session);
    for (uint64_t number = 1; number <= kRemembered; number++) {
      StoreRequest request =
          test_support::make_request(test_support::cancel(std::string(100, 'x')), number, session);
      EXPECT_TRUE(state.carry_out(request, true));
    }
    state.write();
    state.journal().appended();
  }
  for (uint64_t session = 1; session <= kSessions; session++) {
    for (const uint64_t number : {uint64_t{1}, kRemembered}) {
      EXPECT_EQ(ask(state, session, number), session > kSessions - 4 ? 0 : ENODATA) << session;
    }
  }
}

}  // namespace

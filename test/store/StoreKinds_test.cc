#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "store/SqliteFile.h"
#include "store/SqliteTimers.h"
#include "support/SqliteKit.h"

// Kinds of timers that a program makes up as it goes. A file keeps their names for good.

namespace test_support {
namespace {

class StoreKinds : public ::testing::Test {
 protected:
  StoreKinds() {
    std::string message;
    EXPECT_EQ(file_.create(clock_.us, &message), 0) << message;
    EXPECT_EQ(file_.open(&message), 0) << message;
  }
  ~StoreKinds() override { timers_.reset(); }

  void store(const std::string& kind) {
    workflow::ScheduleRequest request = schedule(kind, clock_.us);
    request.spec.kind = kind;
    workflow::StoreFailure failure;
    timers_->carry_out(request, failure, clock_.us);
    EXPECT_EQ(failure.error, 0);
  }
  void end(const std::string& kind) {
    workflow::CancelRequest request = cancel(kind);
    timers_->carry_out(request, clock_.us);
    EXPECT_EQ(request.answers.size(), 1U);
  }
  workflow::LookRequest look() {
    workflow::LookRequest request;
    request.handled = {"handled"};
    timers_->carry_out(request, clock_.us);
    return request;
  }
  // What all statements together have done so far.
  int64_t steps() {
    int64_t steps = 0;
    sqlite3* const handle = file_.connection().handle();
    for (sqlite3_stmt* each = sqlite3_next_stmt(handle, nullptr); each;
         each = sqlite3_next_stmt(handle, each)) {
      steps += sqlite3_stmt_status(each, SQLITE_STMTSTATUS_VM_STEP, 0);
    }
    return steps;
  }

  SetClock clock_;
  FastDir directory_;
  workflow::SqliteFile file_{directory_.path("timers"), {}};
  workflow::SqliteMeta meta_{file_.connection()};
  std::optional<workflow::SqliteTimers> timers_{std::in_place, file_.connection(), meta_, 100};
};

TEST_F(StoreKinds, ALookTakesNoLongerForKindsWithoutTimers) {
  ASSERT_TRUE(file_.connection().run("BEGIN IMMEDIATE"));
  ASSERT_TRUE(meta_.load());
  timers_->begin();
  for (const char* const kind : {"handled", "unhandled"}) {
    store(kind);
  }
  look();  // prepares its statements
  int64_t before = steps();
  look();
  const int64_t usual = steps() - before;
  for (int i = 0; i < 2500; i++) {
    const std::string kind = "made up " + std::to_string(i);
    store(kind);
    end(kind);
  }
  clock_.us += 1;
  before = steps();
  const workflow::LookRequest seen = look();
  // It looks up some names again, but does not walk over 2,500 kinds.
  EXPECT_LE(steps() - before, 2 * usual);
  EXPECT_EQ(seen.overdue, 2U);
  EXPECT_EQ(seen.unhandled, 1U);
  // What is known about kinds is right after much of it was dropped.
  store("made up 3");
  store("made up 2499");
  clock_.us += 1;
  EXPECT_EQ(look().unhandled, 3U);
  EXPECT_TRUE(file_.connection().run("COMMIT"));
}

}  // namespace
}  // namespace test_support

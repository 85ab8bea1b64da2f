#include <gtest/gtest.h>

#include <string>

#include "TaskProbes.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"

// With one compute thread the order in which go tasks begin is the order in which they run.

using probes::Log;
using test_support::Tally;

namespace {

class GoTaskOrder : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.compute_threads = 1;
    WORKFLOW_library_init(&settings);
  }

  // Holds the only compute thread, without telling the pool, until open().
  void close() {
    WFFacilities::go("gate", [this] {
      closed_.add();
      opened_.wait_for(1);
    });
    ASSERT_TRUE(closed_.wait_for(1));
  }
  void open() { opened_.add(); }

  void go(const std::string& queue, const std::string& letter) {
    WFFacilities::go(queue, [this, letter] {
      log_.add(letter);
      ran_.add();
    });
  }

  Log log_;
  Tally ran_;

 private:
  Tally closed_;
  Tally opened_;
};

}  // namespace

TEST_F(GoTaskOrder, OneQueueIsFirstInFirstOut) {
  close();
  for (const char* letter : {"a", "b", "c", "d", "e"}) {
    go("one", letter);
  }
  open();
  ASSERT_TRUE(ran_.wait_for(5));
  EXPECT_EQ(log_.text(), "abcde");
}

TEST_F(GoTaskOrder, QueuesTakeTurns) {
  close();
  for (int i = 0; i < 4; i++) {
    go("long", "l");
  }
  go("short", "s");
  go("other", "o");
  go("other", "o");
  open();
  ASSERT_TRUE(ran_.wait_for(7));
  EXPECT_EQ(log_.text(), "lsololl");
}

#include <gtest/gtest.h>

#include "TaskProbes.h"

// The cases of a suite share a process, and many count the LogTasks and CountedSeries that live. A
// case ends when a callback says so, and the task that called back dies a moment later on its own
// thread. So each case begins when those of the case before it have gone.

namespace {

class BetweenCases : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& /*info*/) override {
    EXPECT_TRUE(probes::all_gone()) << "the case before this one has left tasks";
  }
};

// Before main(), as GoogleTest learns of the cases.
[[maybe_unused]] const bool listens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new BetweenCases);
  return true;
}();

}  // namespace

#include "support/Program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "support/Eventually.h"

// The programs that tests talk to.

namespace test_support {
namespace {

// Whether the program has ended; nothing is read from it, and exit_code() tells how.
bool has_ended(const Program& program) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(program.pid()), &info, WEXITED | WNOHANG | WNOWAIT) ==
             0 &&
         info.si_pid == program.pid();
}

// A server writes more in its life than a pipe holds, and nobody reads it after the beginning.
TEST(Program, IsNotHeldUpByOutputThatMayBeLost) {
  const std::string script =
      "i=0; while [ $i -lt 300 ]; do printf '%1000s' line 2>/dev/null; i=$((i+1)); done; exit 7";
  Program program("sh", {"-c", script}, {.loses_output = true});
  ASSERT_TRUE(program.started());
  EXPECT_TRUE(eventually([&program] { return has_ended(program); }));
  EXPECT_EQ(program.exit_code(), 7);
}

}  // namespace
}  // namespace test_support

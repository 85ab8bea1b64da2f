// What docs/coroutines.md says of script/gdb/coroutines.py: in a process and in its core, it prints
// what each coroutine waits for, through all frames that wait for each other.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/Program.h"
#include "support/Sanitizers.h"
#include "support/TempDir.h"
#include "support/Text.h"
#include "workflow/WFCoroutine.h"

namespace coroutine_debugger {
namespace {

using test_support::Program;
using namespace std::chrono_literals;

// The process that is looked at ------------------------------------------------------------------

// Its frame also has the awaiter of a wait that has ended.
WFCo<int> innermost(std::string mailbox) {
  WFMailboxTask* const earlier = WFTaskFactory::create_mailbox_task(nullptr);
  earlier->send(&mailbox);
  auto first = co_await earlier;
  auto second = co_await wf::receive(mailbox);
  co_return first&& second ? 1 : 0;
}
WFCo<int> between(std::string mailbox) {
  const int n = co_await innermost(mailbox);
  co_return n;
}
WFCo<> outermost(std::string mailbox) {
  const int n = co_await between(mailbox);
  static_cast<void>(n);
}
WFCo<> counts() {
  WFCounterTask* const counter = WFTaskFactory::create_counter_task("debugged", 1, nullptr);
  (void)co_await counter;
}
WFCo<> sleeps() {
  (void)co_await wf::sleep("debugged", 1h);
}
WFCo<> waits_for_both() {
  auto both = co_await wf::all(between("of a group"), sleeps());
  static_cast<void>(both);
}
WFCo<> starts_another() {
  const auto body = [](WFScope& scope) -> WFCo<> {
    scope.start(counts);
    (void)co_await wf::sleep(1h);
  };
  co_await wf::scope(body);
}

// Said in the environment of the process that is looked at, which runs the same test.
constexpr const char* kIsLookedAt = "WORKFLOW_TEST_IS_LOOKED_AT";

void wait_to_be_looked_at() {
  // On a thread of the library, so that each of them waits when its start() returns.
  wf::wait([]() -> WFCo<> {
    wf::task(outermost, "alone")->start();
    Workflow::start_series_work(wf::task(outermost, "in a series"), nullptr);
    wf::task(waits_for_both)->start();
    wf::task(starts_another)->start();
    while (WFTimer::count("debugged") == 0)
      (void)co_await wf::sleep(1ms);
  });
  std::puts("they wait");
  std::fflush(stdout);
  std::getchar();
}

// The tests --------------------------------------------------------------------------------------

std::string gdb(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "-batch");
  Program debugger("gdb", arguments, {.stderr_is_output = true});
  debugger.exit_code();
  return debugger.output();
}

// Without the namespace and the parameters of functions.
std::string shortened(std::string text) {
  const std::string space = "coroutine_debugger::(anonymous namespace)::";
  for (size_t at = text.find(space); at != std::string::npos; at = text.find(space))
    text.erase(at, space.size());
  std::string kept;
  int depth = 0;
  for (const char c : text) {
    depth -= c == ')' ? 1 : 0;
    if (depth == 0 || c == '\n') kept += c;
    depth = c == '\n' ? 0 : depth + (c == '(' ? 1 : 0);
  }
  return kept;
}

void expect_what_waits(const std::string& output) {
  const std::string text = "\n" + shortened(output);
  const std::string chain = "\ninnermost() <- between() <- outermost(), waits for ";
  EXPECT_EQ(test_support::count_of(text, chain + "NamedMailboxTask, given to wf::task"), 2u);
  for (const char* line :
       {"\nwf::all <- waits_for_both(), waits for CoGroup, given to wf::task\n",
        "\ninnermost() <- between(), waits for NamedMailboxTask, in a group of waits_for_both()\n",
        "\nsleeps(), waits for NamedTimerTask, in a group of waits_for_both()\n",
        "\nwf::scope <- starts_another(), waits for CoGroup, given to wf::task\n",
        "\ncounts(), waits for NamedCounterTask, in a group of starts_another()\n",
        ", waits for TimerTask, in a group of starts_another()\n", "\n8 coroutines wait\n"}) {
    EXPECT_EQ(test_support::count_of(text, line), 1u) << line;
  }
  if (testing::Test::HasFailure()) std::puts((output + text).c_str());
}

TEST(CoroutineDebugger, PrintsWhatWaitsInAProcessAndInItsCore) {
  if (std::getenv(kIsLookedAt)) return wait_to_be_looked_at();
  if (test_support::kSanitized || !std::filesystem::exists("/usr/bin/gdb")) {
    GTEST_SKIP() << "needs gdb, and memory without the shadow of a sanitizer";
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string script = std::string(SOURCE_TREE) + "/script/gdb/coroutines.py";
  const test_support::TempDir dir;
  Program waits(self, {"--gtest_filter=CoroutineDebugger.*"},
                {.environment = {std::string(kIsLookedAt) + "=1"}});
  ASSERT_TRUE(waits.prints("they wait"));
  const std::string live = gdb({"-p", std::to_string(waits.pid()), "-x", script, "-ex",
                                "generate-core-file " + dir.path("core")});
  if (live.find("Operation not permitted") != std::string::npos) {
    GTEST_SKIP() << "this process may not look into others";
  }
  expect_what_waits(live);
  const std::string dead = gdb({"-x", script, self, dir.path("core")});
  expect_what_waits(dead);
  waits.close_stdin();
  EXPECT_EQ(waits.exit_code(), 0);
}

}  // namespace
}  // namespace coroutine_debugger

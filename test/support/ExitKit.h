#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/ChildProcess.h"
#include "workflow/WFTask.h"

// This kit is for tests of what happens when a process ends while something is under way. Each test
// runs its own program again as a child. The child plays the scenario that the environment names,
// and ends. What the child sees meanwhile it writes to stdout, which is a pipe to the test.

namespace exit_kit {

struct Scenario {
  const char* name;
  void (*play)();  // main() returns when this does
};

// The main() of both sides: a child plays its scenario, any other process runs the tests.
int run(std::span<const Scenario> scenarios, int argc, char** argv);

// The child's side ------------------------------------------------------------------------------

// Returns the name of the scenario that this process plays. Empty unless it is a child.
std::string_view scenario_name();

using test_support::say;
using test_support::variable;
using test_support::wait_for_exit;

// Calls `word` after the library has stopped.
class LastWord {
 public:
  ~LastWord() {
    if (word) {
      word();
    }
  }
  std::function<void()> word;
};

// Constructed before all objects that a program defines after it includes this header and before
// the first use of the library, and therefore destroyed after them.
inline LastWord last_word;

// To be called right before the exit. When the library has stopped, `report` runs, and then the
// child says how long the stop took.
void begin_exit(std::function<void()> report);

// Counts how tasks end. Thread-safe.
class Outcomes {
 public:
  template <class Task>
  void add(const Task* task) {
    const int error = task->get_error();
    if (task->get_state() == WFT_STATE_SUCCESS) {
      succeeded++;
    } else if (task->get_state() == WFT_STATE_ABORTED && error == 0) {
      aborted++;
    } else if (task->get_state() == WFT_STATE_SYS_ERROR && error == ECANCELED) {
      cancelled++;
    } else {
      failed++;
    }
    called++;
  }
  auto callback() {
    return [this](auto* task) { add(task); };
  }
  // For example "3 called: 2 aborted, 1 cancelled". Outcomes that did not occur are not mentioned.
  std::string text() const;

  std::atomic<int> called{0};
  std::atomic<int> succeeded{0};
  std::atomic<int> aborted{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> failed{0};
};

// Lives until after the last static destructor.
Outcomes& outcomes();

// Says outcomes() when the library has stopped.
void say_outcomes_at_the_end();

// The test's side -------------------------------------------------------------------------------

using Variables = std::vector<std::string>;  // "NAME=value"

// Plays `scenario` in a child that has these variables, and expects the child to end with 0.
// Returns what the child said.
std::string play(const std::string& scenario, const Variables& variables = {});

// Does what play() does, for a scenario that calls begin_exit(). Expects that the stop took less
// than `limit`, which is less than anything the stop could wait for and more than it takes on a
// busy machine. Returns what the child said before it said how long the stop took.
std::string play_promptly(const std::string& scenario, const Variables& variables = {},
                          std::chrono::milliseconds limit = std::chrono::seconds(10));

// How often a test plays a scenario that ends otherwise each time. WORKFLOW_EXIT_TIMES replaces
// the number.
int times(int by_default);

}  // namespace exit_kit

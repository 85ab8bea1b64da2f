#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "recipes/Recipes.h"
#include "support/ExitKit.h"
#include "support/Loopback.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

// What concerns the process as a whole: its end, and fork(2).

namespace recipes_test {
namespace {

// Recipe
class Journal {
 public:
  static Journal& instance() {
    static Journal& journal = *new Journal;
    return journal;
  }
  void add(const std::string& line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lines_.push_back(line);
  }
  size_t size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_.size();
  }

 private:
  Journal() = default;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};
// End of recipe

// Recipe
void serve_in_processes(int listen_fd, int processes, const http_process_t& process) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  int number = 0;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; i++) {
    const pid_t child = fork();
    if (child == 0) {
      WFHttpServer server(process);
      if (server.serve(listen_fd) != 0) std::exit(EXIT_FAILURE);
      sigwait(&signals, &number);
      server.stop();
      std::exit(EXIT_SUCCESS);
    }
    if (child > 0) children.push_back(child);
  }
  sigwait(&signals, &number);
  for (const pid_t child : children)
    kill(child, SIGTERM);
  for (const pid_t child : children)
    waitpid(child, nullptr, 0);
}
// End of recipe

// Ends with a timer outstanding, whose callback uses the journal, first made by a callback.
void end_with_timer() {
  Tally begun;
  WFTaskFactory::create_timer_task(0U, [&begun](WFTimerTask*) {
    Journal::instance().add("begun");
    begun.add();
  })->start();
  begun.wait_for(1);
  WFTaskFactory::create_timer_task(std::chrono::hours(1), [](WFTimerTask* task) {
    Journal::instance().add("ended");
    exit_kit::say(std::to_string(Journal::instance().size()) + " lines, " +
                  (task->get_state() == WFT_STATE_ABORTED ? "aborted" : "not aborted"));
  })->start();
}

constexpr exit_kit::Scenario kScenarios[] = {{"end", end_with_timer}};

TEST(ProcessRecipe, CallbacksAtExitFindWhatIsNeverDestroyed) {
  EXPECT_EQ(exit_kit::play("end"), "2 lines, aborted\n");
}

TEST(ProcessRecipe, EachProcessServesTheSameSocket) {
  const workflow::UniqueFd fd = test_support::listen_on_loopback();
  ASSERT_TRUE(fd.valid());
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::alarm(60);
    serve_in_processes(fd.get(), 2, [](WFHttpTask* task) {
      task->get_resp()->append_output_body(std::to_string(::getppid()));
    });
    ::_exit(0);
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(fd.get()));
  for (int i = 0; i < 10; i++)
    EXPECT_EQ(ask(url).body, std::to_string(parent));
  ::kill(parent, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace recipes_test

int main(int argc, char** argv) {
  return exit_kit::run(recipes_test::kScenarios, argc, argv);
}

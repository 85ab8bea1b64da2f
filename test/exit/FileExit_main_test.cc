#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/Runtime.h"
#include "support/ExitKit.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// What happens when a process ends while file tasks are outstanding, on both backends, which the
// environment chooses.

using namespace exit_kit;

namespace {

template <class Task>
void count(const Task* task) {
  if (task->get_state() == WFT_STATE_ABORTED && task->get_retval() != -1) {
    say("an aborted task has a result");
  }
  outcomes().add(task);
}

constexpr size_t kBlock = 4096;
constexpr int kBlocks = 1024;

// An open file of many blocks; there until the very end.
struct File {
  test_support::TempDir dir;
  std::string path = dir.path("file");
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

  File() {
    const std::vector<char> bytes(kBlock * kBlocks, 'a');
    if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }
  ~File() { ::close(fd); }

  // Every fourth by path, which is for threads on either backend.
  WFFileIOTask* read(int i, std::function<void(WFFileIOTask*)> then = nullptr) {
    auto bytes = std::make_shared<std::array<char, kBlock>>();
    const auto callback = [bytes, then = std::move(then)](WFFileIOTask* task) {
      if (task->get_state() == WFT_STATE_SUCCESS && bytes->back() != 'a') {
        say("wrong bytes");
      }
      count(task);
      if (then) {
        then(task);
      }
    };
    const auto offset = static_cast<off_t>(i % kBlocks) * static_cast<off_t>(kBlock);
    return i % 4 == 0
               ? WFTaskFactory::create_pread_task(path, bytes->data(), kBlock, offset, callback)
               : WFTaskFactory::create_pread_task(fd, bytes->data(), kBlock, offset, callback);
  }
};

// Made before the library is used; deleted by the last word.
File* const file = exit_kit::scenario_name().empty() ? nullptr : new File;

// All were called, and none ended otherwise than it may.
void say_account(int tasks) {
  const exit_kit::Outcomes& all = outcomes();
  const bool right = all.called == tasks && all.succeeded + all.aborted == tasks;
  say(right ? "all is well" : all.text());
  delete file;
}

void say_backend() {
  last_word.word = [] { delete file; };
  say(workflow::Runtime::current().files().backend() == workflow::FileBackend::kRing ? "io_uring"
                                                                                     : "threads");
}

void start_outstanding() {
  constexpr int kTasks = 20'000;
  last_word.word = [] { say_account(kTasks); };
  for (int i = 0; i < kTasks; i++) {
    file->read(i)->start();
  }
}

void set_max_events(int max_events) {
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.fio_max_events = max_events;
  WORKFLOW_library_init(&settings);
}

void start_few_at_a_time() {
  set_max_events(2);
  start_outstanding();
}

void start_tasks_that_start_tasks() {
  constexpr int kTasks = 1000;
  last_word.word = [] { say_account(kTasks * 3); };
  for (int i = 0; i < kTasks; i++) {
    file->read(i,
               [i](WFFileIOTask* task) {
                 file->read(i + 1)->start();
                 series_of(task)->push_back(file->read(i + 2));
               })
        ->start();
  }
}

// One has begun for certain: it waits for a lease that ends only after main has returned. The
// others have not: there is one at a time.
void wait_for_what_has_begun() {
  set_max_events(1);
  sigset_t broken;
  ::sigemptyset(&broken);
  ::sigaddset(&broken, SIGIO);
  ::pthread_sigmask(SIG_BLOCK, &broken, nullptr);
  auto* holder = new std::thread;
  last_word.word = [holder] {
    holder->join();
    delete holder;
    say(outcomes().text());
    delete file;
  };
  if (::fcntl(file->fd, F_SETLEASE, F_WRLCK) != 0) {
    say("no lease");
  }
  // Nothing waits for what others might bring: the counter ends at once.
  static auto& ended = *new test_support::Tally;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(1, [](WFCounterTask* task) {
    say(task->get_state() == WFT_STATE_ABORTED ? "counter aborted" : "counted");
    ended.add();
  });
  counter->start();
  file->read(0, [counter](WFFileIOTask*) { counter->count(); })->start();
  const struct timespec patience = {60, 0};
  ::sigtimedwait(&broken, nullptr, &patience);
  for (int i = 0; i < 1000; i++) {
    file->read(i * 4)->start();
  }
  *holder = std::thread([] {
    ended.wait_for(1);  // the stop has come
    ::fcntl(file->fd, F_SETLEASE, F_UNLCK);
  });
}

void use_the_stopped_library() {
  file->read(0)->start();
  file->read(1)->start();
  WFTaskFactory::create_fsync_task(file->fd, count<WFFileSyncTask>)->start();
  WFTaskFactory::create_pwrite_task(-1, "x", 1, 0, count<WFFileIOTask>)->start();
  file->read(0)->dismiss();
  SeriesWork* series = Workflow::create_series_work(file->read(0), nullptr);
  for (int i = 1; i < 1000; i++) {
    series->push_back(file->read(i));
  }
  series->start();
  say(outcomes().text());
  delete file;
}

void start_after_the_stop() {
  WFTaskFactory::create_timer_task(0, 0, nullptr)->start();
  last_word.word = use_the_stopped_library;
}

void start_before_and_after_the_stop() {
  test_support::Tally ended;
  for (int i = 0; i < 2; i++) {  // one of them for the ring, one for threads
    file->read(i, [&](WFFileIOTask*) { ended.add(); })->start();
  }
  ended.wait_for(2);
  last_word.word = use_the_stopped_library;
}

void exit_in_a_callback() {
  last_word.word = [] { say_account(1001); };
  file->read(1,
             [](WFFileIOTask*) {
               for (int i = 0; i < 1000; i++) {
                 file->read(i)->start();
               }
               std::exit(0);
             })
      ->start();
  exit_kit::wait_for_exit();
}

void start_beside_the_stop() {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  auto* threads = new std::vector<std::thread>;
  last_word.word = [threads] {
    for (std::thread& thread : *threads) {
      thread.join();
    }
    delete threads;
    say_account(kThreads * kEach);
  };
  test_support::Tally begun;
  for (int t = 0; t < kThreads; t++) {
    threads->emplace_back([&begun] {
      file->read(0)->start();
      begun.add();
      for (int i = 1; i < kEach; i++) {
        file->read(i)->start();
      }
    });
  }
  begun.wait_for(kThreads);
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"backend", say_backend},
    {"outstanding", start_outstanding},
    {"few", start_few_at_a_time},
    {"restart", start_tasks_that_start_tasks},
    {"begun", wait_for_what_has_begun},
    {"after", start_after_the_stop},
    {"before-and-after", start_before_and_after_the_stop},
    {"callback", exit_in_a_callback},
    {"beside", start_beside_the_stop},
};

// The test's side -------------------------------------------------------------------------------

class FileExit : public testing::TestWithParam<const char*> {
 protected:
  static std::string play(const char* scenario) {
    return exit_kit::play(scenario, {std::string(workflow::FileIo::kVariable) + "=" + GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(On, FileExit, testing::Values("io_uring", "threads"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace

TEST_P(FileExit, TheEnvironmentChoosesTheBackend) {
  struct io_uring ring;
  const bool offered = ::io_uring_queue_init(4, &ring, 0) == 0;
  if (offered) {
    ::io_uring_queue_exit(&ring);
  }
  EXPECT_EQ(play("backend"), std::string(offered ? GetParam() : "threads") + "\n");
}

TEST_P(FileExit, OutstandingTasksSucceedOrAreAborted) {
  EXPECT_EQ(play("outstanding"), "all is well\n");
}

TEST_P(FileExit, OutstandingTasksOfASmallRingSucceedOrAreAborted) {
  EXPECT_EQ(play("few"), "all is well\n");
}

TEST_P(FileExit, CallbacksMayStartOthers) {
  EXPECT_EQ(play("restart"), "all is well\n");
}

TEST_P(FileExit, WhatHasBegunIsWaitedForWhatHasNotIsAborted) {
  EXPECT_EQ(play("begun"), "counter aborted\n1001 called: 1 succeeded, 1000 aborted\n");
}

TEST_P(FileExit, TasksStartedLaterAreAborted) {
  EXPECT_EQ(play("after"), "1004 called: 1004 aborted\n");
  EXPECT_EQ(play("before-and-after"), "1006 called: 2 succeeded, 1004 aborted\n");
}

TEST_P(FileExit, ExitMayBeCalledInACallback) {
  EXPECT_EQ(play("callback"), "all is well\n");
}

TEST_P(FileExit, OtherThreadsMayStartThemMeanwhile) {
  for (int i = 0; i < 10; i++) {
    ASSERT_EQ(play("beside"), "all is well\n");
  }
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

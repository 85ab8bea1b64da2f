#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "race/Rounds.h"
#include "server/Datagrams.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"

// Servers and clients for datagrams, one of which, or their runtime, stops at any moment.

namespace race {
namespace {

using server_test::Note;
using server_test::NoteTask;
using test_support::TestRandom;
using test_support::UdpSocket;
using workflow::Runtime;
using workflow::ThreadContext;
using Factory = WFNetworkTaskFactory<Note, Note>;

void pause_us(uint64_t us) {
  // Lets the other side come to any state.
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// What became of the requests that a server was given.
struct Served {
  std::atomic<int> begun{0};
  std::atomic<int> called{0};  // the callbacks of their tasks
  std::atomic<int> ended{0};   // and of their series
  std::atomic<int> freed{0};   // contexts of their connections

  std::string account() const {
    return begun == called && begun == ended && begun == freed
               ? ""
               : std::to_string(begun) + " begun, " + std::to_string(called) + " called, " +
                     std::to_string(ended) + " ended, " + std::to_string(freed) + " freed";
  }
};

// Replies at once, later, or not at all.
void serve(NoteTask* task, Served& served) {
  const int number = served.begun++;
  server_test::echo_note(task);
  task->get_connection()->set_context(&served, [&](void*) { served.freed++; });
  task->set_callback([&](NoteTask*) { served.called++; });
  series_of(task)->set_callback([&](const SeriesWork*) { served.ended++; });
  if (number % 5 == 0) {
    task->noreply();
  } else if (number % 5 < 3) {
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task(static_cast<unsigned>(number % 7) * 150, nullptr));
  }
  if (number % 3 == 0) {
    task->push("=pushed", 7);
  }
}

// Requests of several threads, and an account of each: its callback ran once, and what it says is
// one of the ends that there are reasons for.
class Askers {
 public:
  Askers(uint64_t round, uint16_t port, Runtime* runtime)
      : round_(round), port_(port), runtime_(runtime) {
    for (size_t t = 0; t < kThreads; t++) {
      threads_.emplace_back([this, t] { ask(t); });
    }
  }
  // What is wrong; empty if nothing.
  std::string finish() {
    for (std::thread& thread : threads_) {
      thread.join();
    }
    if (!ended_.wait_for(kThreads * kEach)) {
      return "callbacks are missing: " + std::to_string(ended_.count());
    }
    for (const std::atomic<int>& each : callbacks_) {
      if (each != 1) {
        return "a callback ran " + std::to_string(each) + " times";
      }
    }
    return wrong_;
  }
  int succeeded() const { return succeeded_; }
  int aborted() const { return aborted_; }

 private:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 12;

  void ask(size_t thread) {
    ThreadContext::current().runtime = runtime_;
    TestRandom random(test_support::test_seed(), round_ * 10 + thread);
    for (size_t i = 0; i < kEach; i++) {
      const size_t number = thread * kEach + i;
      const std::string text = text_of_round() + std::to_string(number);
      NoteTask* task = Factory::create_client_task(
          TT_UDP, "127.0.0.1", port_, static_cast<int>(random.below(3)),
          [this, number, text](NoteTask* ended) { account(number, text, ended); });
      task->set_watch_timeout(1 + static_cast<int>(random.below(20)));
      task->get_req()->text = text;
      task->start();
      if (random.one_in(3)) {
        pause_us(random.below(1500));
      }
    }
    ThreadContext::current().runtime = nullptr;
  }

  // What all requests of the round begin with.
  std::string text_of_round() const { return "=" + std::to_string(round_) + "."; }

  void account(size_t number, const std::string& text, const NoteTask* task) {
    callbacks_[number]++;
    const int state = task->get_state();
    const int error = task->get_error();
    const std::string& reply = task->get_resp()->text;
    bool right = false;
    if (state == WFT_STATE_SUCCESS) {
      succeeded_++;
      // A port may be taken again while the answer to who had it before is still under way.
      right = reply.starts_with(text_of_round()) || reply == "=pushed";
    } else if (state == WFT_STATE_ABORTED) {
      aborted_++;
      right = runtime_ != nullptr;
    } else {
      right = state == WFT_STATE_SYS_ERROR && (error == ETIMEDOUT || error == ECONNREFUSED);
    }
    if (!right) {
      const workflow::MutexLock lock(mutex_);
      wrong_ += text + " ended with state " + std::to_string(state) + ", error " +
                std::to_string(error) + ", reply '" + reply + "'; ";
    }
    ended_.add();
  }

  const uint64_t round_;
  const uint16_t port_;
  Runtime* const runtime_;
  std::array<std::atomic<int>, kThreads * kEach> callbacks_{};
  std::atomic<int> succeeded_{0};
  std::atomic<int> aborted_{0};
  workflow::Mutex mutex_;
  std::string wrong_;  // of the callbacks; read after all of them
  test_support::Tally ended_;
  std::vector<std::thread> threads_;
};

TEST(DatagramRace, TheServerStopsMeanwhile) {
  const uint64_t count = rounds(150);
  int succeeded = 0;
  for (uint64_t round = 0; round < count; round++) {
    TestRandom random(test_support::test_seed(), round * 10 + 9);
    Served served;
    struct WFServerParams params = server_test::udp_params();
    params.max_connections = 1 + random.below(20);
    server_test::NoteServer server([&](NoteTask* task) { serve(task, served); }, params);
    Askers askers(round, server.port(), nullptr);
    pause_us(random.below(8000));
    server.stop();
    ASSERT_EQ(served.account(), "") << "round " << round;
    ASSERT_EQ(askers.finish(), "") << "round " << round;
    succeeded += askers.succeeded();
  }
  EXPECT_GT(succeeded, static_cast<int>(count));
}

// With both sides in it.
TEST(DatagramRace, TheRuntimeStopsMeanwhile) {
  const uint64_t count = rounds(400);
  int succeeded = 0;
  int aborted = 0;
  for (uint64_t round = 0; round < count; round++) {
    TestRandom random(test_support::test_seed(), round * 10 + 8);
    Served served;
    Runtime runtime({.poller_threads = 1 + static_cast<int>(random.below(3)),
                     .handler_threads = 1 + static_cast<int>(random.below(4)),
                     .compute_threads = 1});
    ASSERT_TRUE(runtime.start());
    ThreadContext::current().runtime = &runtime;
    {
      server_test::NoteServer server([&](NoteTask* task) { serve(task, served); });
      Askers askers(round, server.port(), &runtime);
      pause_us(random.below(8000));
      runtime.stop();
      ASSERT_EQ(askers.finish(), "") << "round " << round;
      succeeded += askers.succeeded();
      aborted += askers.aborted();
    }
    ThreadContext::current().runtime = nullptr;
    ASSERT_EQ(served.account(), "") << "round " << round;
  }
  EXPECT_GT(succeeded, static_cast<int>(count));
  EXPECT_GT(aborted, static_cast<int>(count));
}

}  // namespace
}  // namespace race

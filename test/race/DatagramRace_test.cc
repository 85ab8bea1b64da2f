#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <string>

#include "kernel/Runtime.h"
#include "support/Datagrams.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"

// Servers and clients for datagrams, one of which, or their runtime, stops at any moment.

namespace race {
namespace {

using server_test::Note;
using server_test::NoteTask;
using test_support::TestRandom;
using workflow::Runtime;
using Factory = WFNetworkTaskFactory<Note, Note>;

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

// Requests of several threads to a server. Where the runtime does not stop, the server does. Then
// an account of each request: its callback ran once, and what it says is one of the ends that there
// are reasons for.
class DatagramRound final : public Round {
 public:
  DatagramRound(uint64_t number, Runtime* runtime)
      : Round(number, runtime), random_(test_support::test_seed(), number * 10 + 9) {
    struct WFServerParams params = server_test::udp_params();
    if (!is_stopped_meanwhile()) {
      params.max_connections = 1 + random_.below(20);
    }
    server_.emplace([this](NoteTask* task) { serve(task, served_); }, params);
    port_ = server_->port();
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { ask(t); });
    }
  }
  std::string finish() override {
    if (!is_stopped_meanwhile()) {
      pause_us(random_.below(kLongestUs));
      server_->stop();
    }
    join_threads();
    if (!ended_.wait_for(kThreads * kEach)) {
      return "callbacks are missing: " + std::to_string(ended_.count());
    }
    for (const std::atomic<int>& each : callbacks_) {
      if (each != 1) return "a callback ran " + std::to_string(each) + " times";
    }
    server_.reset();
    require(served_.account().empty(), served_.account());
    return problem();
  }
  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS   ? succeeded_
           : state == WFT_STATE_ABORTED ? aborted_
                                        : failed_;
  }

  // How long after the round began the server or the runtime stops, at most.
  static constexpr uint64_t kLongestUs = 8000;

 private:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 12;

  void ask(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
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
  }

  // What all requests of the round begin with.
  std::string text_of_round() const { return "=" + std::to_string(this->number()) + "."; }

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
      right = is_stopped_meanwhile();
    } else {
      failed_++;
      right = state == WFT_STATE_SYS_ERROR && (error == ETIMEDOUT || error == ECONNREFUSED);
    }
    require(right, text + " ended with state " + std::to_string(state) + ", error " +
                       std::to_string(error) + ", reply '" + reply + "'");
    ended_.add();
  }

  TestRandom random_;
  Served served_;
  std::optional<server_test::NoteServer> server_;
  uint16_t port_ = 0;
  std::array<std::atomic<int>, kThreads * kEach> callbacks_{};
  std::atomic<size_t> succeeded_{0};
  std::atomic<size_t> failed_{0};
  std::atomic<size_t> aborted_{0};
  test_support::Tally ended_;
};

TEST(DatagramRace, TheServerStopsMeanwhile) {
  const uint64_t count = rounds(150);
  const auto enough = [count](const Totals& all) { return all.succeeded > count; };
  EXPECT_TRUE(enough(run_rounds(count, begin<DatagramRound>(), enough)));
}

// With both sides in it.
TEST(DatagramRace, TheRuntimeStopsMeanwhile) {
  const uint64_t count = rounds(400);
  const auto enough = [count](const Totals& all) {
    return all.succeeded > count && all.aborted > count;
  };
  EXPECT_TRUE(
      enough(run_stopped_rounds(count, DatagramRound::kLongestUs, begin<DatagramRound>(), enough)));
}

}  // namespace
}  // namespace race

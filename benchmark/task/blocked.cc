// Row blocked: how long items wait behind a callback that computes or sleeps for 50 ms without
// saying so, while other threads have nothing to do. Links: workflow.
//
// Each way is one kind of place in which the items behind it are: see the functions run_*(). In
// each of --rounds rounds the time is taken from the begin of the callback until another thread has
// begun each of the items. The callback ends when all of them have begun, or after 50 ms: a longest
// time of 50 ms means that nobody else came. Pauses between the rounds are random, because what a
// supervisor does depends on what it has seen before.

#include <pthread.h>
#include <workflow/WFFacilities.h>
#include <workflow/WFGlobal.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/WFTimer.h>
#include <workflow/Workflow.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/Measure.h"

namespace bench {
namespace {

constexpr int64_t kBlockNs = 50 * kNsPerMs;
constexpr size_t kHandlers = 4;
constexpr int kPollers = 4;
constexpr size_t kBehind = 8;

enum class How { kComputes, kSleeps };
const char* name_of(How how) {
  return how == How::kComputes ? "computes" : "sleeps";
}

// One callback that blocks, and the items behind it. The callback and the items call block() and
// item(), each once. Shared by all of them, as the last one may outlast the round.
class Round {
 public:
  Round(How how, size_t items, int64_t block_ns = kBlockNs)
      : how_(how), block_ns_(block_ns), left_(items), taken_ns_(items) {}

  void block() {
    char thread[16] = {};
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    on_leader_ = std::string_view(thread) == "wf-poller";
    const int64_t begin_ns = now_ns();
    begin_ns_ = begin_ns;
    if (how_ == How::kSleeps) {
      (void)all_begun_.try_acquire_for(std::chrono::nanoseconds(block_ns_));
    } else {
      while (left_.load(std::memory_order_relaxed) > 0 && now_ns() - begin_ns < block_ns_) {
      }
    }
    blocker_left_ = true;
  }
  void item(size_t i) {
    taken_ns_[i] = now_ns();
    if (left_.fetch_sub(1) == 1) all_begun_.release();
  }

  void wait_begun() const {
    while (begin_ns_ == 0)
      std::this_thread::yield();
  }
  void wait_ended() const {
    while (!blocker_left_ || left_ > 0)
      sleep_ns(50 * kNsPerUs);
  }
  bool on_leader() const { return on_leader_; }
  int64_t begin_ns() const { return begin_ns_; }
  // How long each item was held up. `since_ns`: if it has been posted after the callback began.
  void add_to(std::vector<int64_t>& samples, int64_t since_ns = 0) const {
    for (const std::atomic<int64_t>& taken_ns : taken_ns_)
      samples.push_back(taken_ns - std::max(begin_ns_.load(), since_ns));
  }

 private:
  const How how_;
  const int64_t block_ns_;
  std::atomic<size_t> left_;
  std::vector<std::atomic<int64_t>> taken_ns_;
  std::atomic<int64_t> begin_ns_{0};
  std::atomic<bool> on_leader_{false};
  std::atomic<bool> blocker_left_{false};
  std::binary_semaphore all_begun_{0};
};
using Shared = std::shared_ptr<Round>;

void print(const std::string& way, How how, std::vector<int64_t> samples) {
  const size_t count = samples.size();
  const Quantiles all(std::move(samples));
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / kNsPerUs; };
  Line("blocked_" + way + "_" + name_of(how), "ours")
      .add("samples", count)
      .add("p50_us", us(all.at(0.5)))
      .add("p99_us", us(all.at(0.99)))
      .add("max_us", us(all.max()))
      .print();
}

// Items that end at once, in the order of the functions. Started by an application's thread they
// come to the handlers as one batch; started by a handler it runs them one after the other.
ParallelWork* items_of(std::vector<std::function<void()>> functions) {
  ParallelWork* const all = Workflow::create_parallel_work(nullptr);
  for (std::function<void()>& function : functions) {
    auto* const item = WFTaskFactory::create_counter_task(
        0, [function = std::move(function)](WFCounterTask*) { function(); });
    all->add_series(Workflow::create_series_work(item, nullptr));
  }
  return all;
}

// The callback that blocks, and so many items behind it.
std::vector<std::function<void()>> functions_of(const Shared& round, size_t items = kBehind) {
  std::vector<std::function<void()>> functions{[round] { round->block(); }};
  for (size_t i = 0; i < items; ++i)
    functions.push_back([round, i] { round->item(i); });
  return functions;
}

void start_go(std::function<void()> function) {
  WFTaskFactory::create_go_task("queue", std::move(function))->start();
}

// A pool that has run many short items expects short ones: it takes several at a time, and wakes no
// second thread for them.
void teach_handlers() {
  for (int i = 0; i < 60; ++i) {
    std::atomic<size_t> ran{0};
    items_of(std::vector<std::function<void()>>(10, [&ran] { ++ran; }))->start();
    while (ran < 10)
      std::this_thread::yield();
  }
}

void teach_computing() {
  for (int i = 0; i < 60; ++i) {
    std::atomic<size_t> ran{0};
    for (int j = 0; j < 10; ++j)
      start_go([&ran] { ++ran; });
    while (ran < 10)
      std::this_thread::yield();
  }
}

void pause(Random& random) {
  sleep_ns(random.below(3 * kNsPerMs));
}

// Behind it in the share of the same handler.
void run_share(How how, size_t rounds) {
  Random random(1);
  std::vector<int64_t> samples;
  for (size_t i = 0; i < rounds; ++i) {
    pause(random);
    teach_handlers();
    const auto round = std::make_shared<Round>(how, kBehind);
    items_of(functions_of(round))->start();
    round->wait_ended();
    round->add_to(samples);
  }
  print("share", how, std::move(samples));
}

// Posted to the handlers when it has begun, some time later.
void run_queue(How how, size_t rounds) {
  Random random(2);
  std::vector<int64_t> samples;
  for (size_t i = 0; i < rounds; ++i) {
    pause(random);
    teach_handlers();
    const auto round = std::make_shared<Round>(how, 1);
    items_of({[round] { round->block(); }})->start();
    round->wait_begun();
    sleep_ns(random.below(100 * kNsPerUs));
    const int64_t posted_ns = now_ns();
    items_of({[round] { round->item(0); }})->start();
    round->wait_ended();
    round->add_to(samples, posted_ns);
  }
  print("queue", how, std::move(samples));
}

// Branches of a parallel that the same handler has still to begin.
void run_branches(How how, size_t rounds) {
  Random random(3);
  std::vector<int64_t> samples;
  for (size_t i = 0; i < rounds; ++i) {
    pause(random);
    teach_handlers();
    const auto round = std::make_shared<Round>(how, kBehind);
    WFTaskFactory::create_counter_task(0, [round](WFCounterTask* task) {
      series_of(task)->push_back(items_of(functions_of(round)));
    })->start();
    round->wait_ended();
    round->add_to(samples);
  }
  print("branches", how, std::move(samples));
}

// Go tasks behind a go task, on the same queue.
void run_go(How how, size_t rounds) {
  Random random(4);
  std::vector<int64_t> samples;
  for (size_t i = 0; i < rounds; ++i) {
    pause(random);
    teach_computing();
    const auto round = std::make_shared<Round>(how, kBehind);
    for (const std::function<void()>& function : functions_of(round))
      start_go(function);
    round->wait_ended();
    round->add_to(samples);
  }
  print("go", how, std::move(samples));
}

// Timers that a poller has found due together: its leader runs them itself. And a timer of the same
// poller that becomes due a moment later, which a leader has to find. A poller whose leader had to
// be replaced runs no callbacks for up to a second, so the pollers take turns: each thread that is
// new starts its timers on the next one.
void run_leader(How how, size_t rounds) {
  using Clock = std::chrono::steady_clock;
  Random random(5);
  std::vector<int64_t> samples;
  std::vector<int64_t> later;
  while (later.size() < rounds) {
    const auto round = std::make_shared<Round>(how, kBehind + 1);
    std::thread([&random, round] {
      const auto due = Clock::now() + std::chrono::milliseconds(3);
      for (const std::function<void()>& function : functions_of(round, kBehind))
        WFTimer::create(due, [function](WFTimerTask*) { function(); })->start();
      const auto later_due = due + std::chrono::nanoseconds(100'000 + random.below(200'000));
      WFTimer::create(later_due, [round](WFTimerTask*) { round->item(kBehind); })->start();
    }).join();
    round->wait_ended();
    if (round->on_leader()) {
      round->add_to(samples);
      later.push_back(samples.back());
      samples.pop_back();
    }
    sleep_ns(1'050 * kNsPerMs / kPollers + random.below(3 * kNsPerMs));
  }
  print("leader", how, std::move(samples));
  print("poller", how, std::move(later));
}

// All handlers block: the time from one item to the next, each of which needs a new thread.
void run_all(How how) {
  constexpr size_t kItems = 24;
  std::vector<Shared> rounds;
  for (size_t i = 0; i < kHandlers + kItems; ++i) {
    rounds.push_back(std::make_shared<Round>(how, 1, 10 * kNsPerSecond));
    items_of({[round = rounds.back()] { round->block(); }})->start();
  }
  std::vector<int64_t> samples;
  for (const Shared& round : rounds)
    round->wait_begun();
  for (size_t i = kHandlers; i < rounds.size(); ++i)
    samples.push_back(rounds[i]->begin_ns() - rounds[i - 1]->begin_ns());
  for (const Shared& round : rounds) {
    round->item(0);
    round->wait_ended();
  }
  print("all", how, std::move(samples));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using bench::How;
  const bench::Options options(argc, argv);
  const size_t rounds = options.count("rounds", 1000);
  const size_t leader_rounds = options.count("leader_rounds", 60);
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.handler_threads = static_cast<int>(bench::kHandlers);
  settings.poller_threads = bench::kPollers;
  settings.compute_threads = 2;
  WORKFLOW_library_init(&settings);
  const std::string only = options.text("only", "");
  for (const How how : {How::kSleeps, How::kComputes}) {
    if (only.empty() || only == "share") bench::run_share(how, rounds);
    if (only.empty() || only == "queue") bench::run_queue(how, rounds);
    if (only.empty() || only == "branches") bench::run_branches(how, rounds / 50);
    if (only.empty() || only == "go") bench::run_go(how, rounds);
    if (only.empty() || only == "leader") bench::run_leader(how, leader_rounds);
  }
  if (only.empty() || only == "all") bench::run_all(How::kSleeps);
  return 0;
}

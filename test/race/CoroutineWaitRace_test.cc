#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernel/Runtime.h"
#include "support/CoroutineWaits.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFCoroutine.h"

// Coroutines in every kind of wait, while threads bring what they wait for, cancel their scopes,
// give these deadlines and cancel their series, each at any moment; then an account:
//
// 1. Each coroutine has begun and ended once, and its frames were destroyed once.
// 2. Each wait has ended in a way that somebody has gone (WaitPlace::problem()).
// 3. Guards, resources and messages are where they should be.

namespace race {
namespace {

using test_support::local_wait_kinds;
using test_support::network_wait_kinds;
using test_support::TestRandom;
using test_support::WaitKind;
using test_support::WaitPlace;
using workflow::Runtime;

class WaitKindsRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kPlaces = 24;

  WaitKindsRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    TestRandom random(test_support::test_seed(), number * 10 + kThreads);
    for (size_t i = 0; i < kPlaces; i++)
      add_place(kind_of(random), i);
    for (size_t t = 0; t < kThreads; t++)
      start_thread([this, t] { run(t); });
  }

  std::string finish() override {
    join_threads();
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    do {
      for (const auto& place : places_)
        place->bring();
    } while (!ended_.wait_for(kPlaces, std::chrono::milliseconds(1)) &&
             std::chrono::steady_clock::now() < give_up);
    require(ended_.count() == kPlaces, std::to_string(ended_.count()) + " coroutines ended");
    for (const auto& place : places_) {
      const std::string wrong = ended_.count() == kPlaces ? place->problem() : "";
      require(wrong.empty(), wrong);
    }
    if (problem().empty() && !is_stopped_meanwhile()) {
      for (const auto& place : places_) {
        const bool is_back = wf::wait(&WaitPlace::nothing_is_lost, place.get());
        require(is_back, std::string(place->kind().name) + ": lost");
      }
    }
    if (ended_.count() != kPlaces) {  // they may still use these
      for (auto& place : places_)
        static_cast<void>(place.release());
    }
    return problem();
  }
  size_t outcomes(int state) const override {
    size_t count = 0;
    for (const auto& place : places_)
      count += place && place->ended && place->ended->state == state ? 1 : 0;
    return count;
  }

 private:
  static const WaitKind& kind_of(TestRandom& random) {
    const std::span<const WaitKind> local = local_wait_kinds();
    const std::span<const WaitKind> network = network_wait_kinds();
    return random.one_in(20) ? network[random.below(network.size())]
                             : local[random.below(local.size())];
  }
  void add_place(const WaitKind& kind, size_t i) {
    const std::string name = "wait race " + std::to_string(number()) + " " + std::to_string(i);
    places_.push_back(std::make_unique<WaitPlace>(kind, name));
    if (is_stopped_meanwhile()) places_.back()->note_stop();
    tasks_.push_back(WFTaskFactory::create_scope_task(
        wf::task(&WaitPlace::stay, places_.back().get()), [this](WFScopeTask*) { ended_.add(); }));
    scopes_.push_back(tasks_.back()->scope());
  }

  // Starts its share of the coroutines, and does something to any of them each time.
  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t i = thread; i < kPlaces; i += kThreads) {
      tasks_[i]->start();
      for (int n = 0; n < 2; n++)
        do_something(random, random.below(kPlaces));
    }
  }
  void do_something(TestRandom& random, size_t i) {
    switch (random.below(5)) {
      case 0:
        return places_[i]->cancel(scopes_[i]);
      case 1:
        return places_[i]->set_deadline(scopes_[i], std::chrono::microseconds(random.below(200)));
      case 2:
        return places_[i]->drop();
      default:
        return places_[i]->bring();
    }
  }

  std::vector<std::unique_ptr<WaitPlace>> places_;
  std::vector<WFScopeTask*> tasks_;
  std::vector<WFScope> scopes_;
  test_support::Tally ended_;
};

TEST(CoroutineWaitRace, EachEndsAsItMayAndNothingIsLost) {
  const uint64_t count = rounds(120) / 2;  // each of them takes long
  const Totals totals = run_rounds(count, begin<WaitKindsRound>());
  expect_each_side_won(totals, count / 10);
}

TEST(CoroutineWaitRace, StoppedMeanwhile) {
  const uint64_t count = rounds(120) / 3;
  const auto enough = [](const Totals& totals) {
    return totals.succeeded > 0 && totals.failed > 0 && totals.aborted > 0;
  };
  const Totals totals = run_stopped_rounds(count, 400, begin<WaitKindsRound>(), enough);
  EXPECT_TRUE(enough(totals));
}

}  // namespace
}  // namespace race

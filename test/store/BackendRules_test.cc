#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "store/BackendComparison.h"
#include "store/BackendKit.h"
#include "store/BackendReference.h"
#include "store/FaultyBackend.h"
#include "store/RandomRequests.h"
#include "store/StoreBackend.h"
#include "support/TestSeed.h"

// Random requests to two backends of one store, and to the reference, get the same answers.

namespace {

using store_test::BackendComparison;
using store_test::BackendKind;
using store_test::BackendReference;
using store_test::Difference;
using store_test::FaultyBackend;
using store_test::RandomRequests;
using store_test::SetClock;
using store_test::StorePlace;
using test_support::env_number;
using test_support::test_seed;
using test_support::TestRandom;
using workflow::kUsPerSec;
using workflow::RunId;
using workflow::StoreRequest;

constexpr size_t kRemembered = 16;
constexpr int64_t kLongUs = 3600 * kUsPerSec;

// A store of two backends beside the reference; or of one, if it has an owner, which changes.
class Trial {
 public:
  Trial(const BackendKind& kind, uint64_t seed, uint64_t stream)
      : has_owner_(kind.has_owner),
        place_(kind),
        random_(seed, stream),
        comparison_(kind.redis_shards == 0) {
    for (const uint64_t session : {uint64_t{101}, uint64_t{102}}) {
      if (backends_.empty() || !has_owner_) {
        backends_.push_back(std::make_unique<FaultyBackend>(place_.open(session, kRemembered)));
      }
    }
  }

  // Carries out one batch. Returns how many requests it had.
  size_t step(Difference& difference) {
    place_.note_step();
    move_clock();
    if (has_owner_ && random_.one_in(15)) {
      change_owner(difference);
    }
    const size_t chosen = random_.below(2);
    FaultyBackend& backend = *backends_[has_owner_ ? 0 : chosen];
    std::vector<StoreRequest> batch = std::exchange(repeated_, {});
    for (uint64_t n = 1 + random_.below(6); n > 0; --n) {
      batch.push_back(requests_.any(place_.clock.now_us(), 101 + chosen));
    }
    const size_t steps = batch.size();
    for (const StoreRequest& request : RandomRequests::audit()) {
      batch.push_back(request);
    }

    std::vector<StoreRequest> real;
    for (const StoreRequest& request : batch) {
      real.push_back(translated(request));
    }
    std::vector<StoreRequest*> pointers;
    for (StoreRequest& request : real) {
      pointers.push_back(&request);
    }
    if (random_.one_in(30)) {
      fail(backend, batch, pointers, difference);
      return steps;
    }
    difference.expect_true("the store works", backend.execute(pointers));
    for (size_t i = 0; i < batch.size() && difference.text().empty(); ++i) {
      reference_.execute(batch[i]);
      comparison_.compare(batch[i], real[i], difference);
      note_runs(batch[i]);
      last_ = batch[i];
    }
    check_stages(batch.back(), difference);
    comparison_.timers.trim(500);
    comparison_.fences.trim(500);
    return steps;
  }

  int moves() const { return place_.moves(); }

  // The kind of the request that was compared last.
  size_t last_kind() const { return last_.what.index(); }

 private:
  void move_clock() {
    SetClock& clock = place_.clock;
    int64_t now_us = clock.now_us();
    const std::vector<int64_t> moments = reference_.moments();
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        break;
      case 4:
        now_us += random_.between(0, kUsPerSec);
        break;
      case 5:
        now_us += random_.between(-kLongUs, kLongUs);
        break;
      case 6:
      case 7:
        now_us += random_.between(1, 3);
        break;
      default:
        // Around the time at which a timer is due, or a lease is over.
        if (!moments.empty()) {
          now_us = moments[random_.below(moments.size())] + random_.between(-1, 1);
        }
    }
    constexpr int64_t range_us = 1000 * kLongUs;
    now_us = std::clamp(now_us, SetClock::kStartUs - range_us, SetClock::kStartUs + range_us);
    clock.set_us(now_us, random_.between(0, 999));
    reference_.set_now(now_us);
  }

  // The store is opened again: by its owner, or by another one after the first has closed it or
  // died.
  void change_owner(Difference& difference) {
    const uint64_t how = random_.below(3);
    if (how == 0) {
      std::string message;
      difference.expect("reopen", 0, backends_[0]->reopen(&message));
      return;
    }
    if (how == 1) {
      place_.crash();
    }
    backends_.clear();
    backends_.push_back(
        std::make_unique<FaultyBackend>(place_.open(101 + random_.below(2), kRemembered)));
    reference_.end_leases();
  }

  // Makes the backend fail. What has an id is then said again, or asked for.
  void fail(FaultyBackend& backend, std::vector<StoreRequest>& batch,
            const std::vector<StoreRequest*>& real, Difference& difference) {
    const bool carried_out = random_.one_in(2);
    backend.fail_next(carried_out ? FaultyBackend::Fault::kAfter : FaultyBackend::Fault::kBefore);
    difference.expect_true("the store fails", !backend.execute(real));
    std::string message;
    difference.expect("reopen", 0, backend.reopen(&message));
    for (StoreRequest& request : batch) {
      if (request.id.number != 0 && random_.one_in(3)) {
        StoreRequest ask;
        ask.what = workflow::AskRequest{request.id, false, {}};
        repeated_.push_back(ask);
      } else if (request.id.number != 0 ||
                 std::holds_alternative<workflow::AskRequest>(request.what)) {
        repeated_.push_back(request);
      }
      if (carried_out) {
        reference_.execute(request);
      }
    }
  }

  StoreRequest translated(const StoreRequest& request) const {
    StoreRequest real = request;
    if (auto* finish = std::get_if<workflow::FinishRequest>(&real.what)) {
      finish->run = translated(finish->run);
    } else if (auto* extend = std::get_if<workflow::ExtendRequest>(&real.what)) {
      for (RunId& run : extend->runs) {
        run = translated(run);
      }
    } else if (auto* list = std::get_if<workflow::ListRequest>(&real.what)) {
      list->after_timer = comparison_.timers.real(list->after_timer);
    }
    return real;
  }
  RunId translated(const RunId& run) const {
    return {comparison_.timers.real(run.timer), comparison_.fences.real(run.fence)};
  }

  void note_runs(const StoreRequest& request) {
    const auto* claim = std::get_if<workflow::ClaimRequest>(&request.what);
    if (claim == nullptr) return;
    for (const workflow::ClaimRequest::Claimed& claimed : claim->claimed) {
      requests_.runs.push_back(claimed.run);
      if (requests_.runs.size() > 30) {
        requests_.runs.pop_front();
      }
    }
  }

  // Each timer is in one stage. `audit` has listed all of them.
  void check_stages(const StoreRequest& audit, Difference& difference) {
    if (!difference.text().empty()) return;
    const auto& listed = std::get<workflow::ListRequest>(audit.what).timers;
    requests_.timers = listed;
    const BackendReference::Stages stages = reference_.stages();
    difference.expect("the sum of the stages",
                      stages.waiting + stages.leased + stages.blocked + stages.failed,
                      listed.size());
    const auto in_stage = [&listed](WFStoreStage stage) {
      return static_cast<size_t>(
          std::count_if(listed.begin(), listed.end(),
                        [stage](const WFStoreInfo& timer) { return timer.stage == stage; }));
    };
    difference.expect("the blocked ones", stages.blocked, in_stage(WFStoreStage::kBlocked));
    difference.expect("the failed ones", stages.failed, in_stage(WFStoreStage::kFailed));
    difference.expect("the others", stages.waiting + stages.leased,
                      in_stage(WFStoreStage::kWaiting) + in_stage(WFStoreStage::kRunning));
  }

  const bool has_owner_;
  StorePlace place_;
  TestRandom random_;
  RandomRequests requests_{random_, kRemembered};
  BackendReference reference_{SetClock::kStartUs, kRemembered};
  BackendComparison comparison_;
  std::vector<std::unique_ptr<FaultyBackend>> backends_;
  std::vector<StoreRequest> repeated_;  // for the next batch
  StoreRequest last_;
};

// The second parameter tells the cases apart: they are independent, and run at the same time.
class BackendRules : public testing::TestWithParam<std::tuple<BackendKind, uint64_t>> {};

TEST_P(BackendRules, AgreeWithTheReference) {
  const auto& [kind, stream] = GetParam();
  const uint64_t seed = test_seed();
  // A Redis answers over a socket, which takes longer.
  const int64_t usual_steps = kind.redis_masters > 0 ? 1500 : kind.redis_shards > 0 ? 2500 : 5000;
  const auto steps = static_cast<size_t>(env_number("WORKFLOW_STORE_STEPS", usual_steps));
  Trial trial(kind, seed, stream);
  Difference difference;
  for (size_t done = 0; done < steps;) {
    const size_t before = done;
    done += trial.step(difference);
    ASSERT_EQ(difference.text(), "") << "after step " << before << ", in a request of kind "
                                     << trial.last_kind() << ", seed " << seed;
  }
  EXPECT_TRUE(kind.redis_masters == 0 || trial.moves() > 3);
}

std::string case_name(const testing::TestParamInfo<BackendRules::ParamType>& info) {
  return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Each, BackendRules,
                         testing::Combine(testing::ValuesIn(store_test::backend_kinds()),
                                          testing::Range<uint64_t>(0, 6)),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Moving, BackendRules,
                         testing::Combine(testing::Values(store_test::moving_backend_kind()),
                                          testing::Range<uint64_t>(0, 2)),
                         case_name);

}  // namespace

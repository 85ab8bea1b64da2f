#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/RedisStoreBackend.h"
#include "store/StoreBackend.h"
#include "support/RedisCluster.h"
#include "support/RedisServer.h"
#include "support/TempDir.h"
#include "util/Clock.h"

namespace store_test {

// A wall clock that shows what the test says. Any thread.
class SetClock final : public workflow::Clock {
 public:
  // 2023-11-14.
  static constexpr int64_t kStartUs = 1'700'000'000'000'000;

  int64_t now_ns() override { return 0; }
  int64_t now_ns_on(workflow::ClockId clock) override {
    return clock == workflow::ClockId::kWall ? wall_ns_.load() : 0;
  }

  int64_t now_us() const { return wall_ns_.load() / 1000; }
  // `more_ns` is below one microsecond: backends do not see it.
  void set_us(int64_t us, int64_t more_ns = 0) { wall_ns_ = us * 1000 + more_ns; }
  void move_us(int64_t us) { set_us(now_us() + us); }

 private:
  std::atomic<int64_t> wall_ns_{kStartUs * 1000};
};

// One of the backends.
struct BackendKind {
  const char* name;
  decltype(&workflow::open_memory_backend) open;
  // How many shards it has on a Redis server; 0 if it needs none.
  size_t redis_shards = 0;
  // Whether it is open once at a time, and the leases end when it is opened by another backend.
  bool has_owner = false;
  // If it is a Cluster: how many masters it has, and whether the slot of its first shard moves from
  // one to the other while the test goes on.
  size_t redis_masters = 0;
  bool slots_move = false;
};

inline void PrintTo(const BackendKind& kind, std::ostream* out) {
  *out << kind.name;
}

// A store in a Redis whose scripts take the time from the clock of the test.
inline std::unique_ptr<workflow::StoreBackend> open_redis_with_clock(
    const std::string& url, const workflow::StoreBackendOptions& options, int* error,
    std::string* message) {
  return workflow::RedisStoreBackend::open(url, options, options.clock, error, message);
}

// A store in a file that has one owner.
inline std::unique_ptr<workflow::StoreBackend> open_owned(
    const std::string& path, const workflow::StoreBackendOptions& options, int* error,
    std::string* message) {
  return workflow::open_sqlite_backend(path + "?layout=owned", options, error, message);
}

// Those that every fact about the rules is checked for.
inline std::vector<BackendKind> backend_kinds() {
  return {{"Memory", &workflow::open_memory_backend},
          {"Sqlite", &workflow::open_sqlite_backend},
          {"Owned", &open_owned, 0, true},
          {"Redis", &open_redis_with_clock, 1}};
}

// The kinds of backend_kinds(), and those whose numbers grow for each name only.
inline std::vector<BackendKind> rules_backend_kinds() {
  std::vector<BackendKind> kinds = backend_kinds();
  kinds.push_back({"RedisShards", &open_redis_with_clock, 5});
  kinds.push_back({"RedisCluster", &open_redis_with_clock, 5, false, 3});
  return kinds;
}

// A store in a Cluster of three masters, whose only shard moves while it is used.
inline BackendKind moving_backend_kind() {
  return {"RedisCluster", &open_redis_with_clock, 1, false, 3, true};
}

// The servers that the stores of several cases are in, one case after the other. Each is started
// when a case needs it first, because a Cluster takes a while to begin.
struct StoreServers {
  std::unique_ptr<redis_test::RedisServer> server;
  std::unique_ptr<redis_test::RedisCluster> cluster;
  int places = 0;  // how many there were; each has a namespace of its own
};

// For INSTANTIATE_TEST_SUITE_P.
inline std::string backend_name(const testing::TestParamInfo<BackendKind>& info) {
  return info.param.name;
}

// A place for a store of that kind, with a clock. It must outlive what it opens.
class StorePlace {
 public:
  explicit StorePlace(const BackendKind& kind) : StorePlace(kind, own_servers_) {}
  // In servers that others have used. They must outlive it, and have one place at a time.
  StorePlace(const BackendKind& kind, StoreServers& servers)
      : kind_(kind), servers_(servers), namespace_("test" + std::to_string(servers.places++)) {
    if (kind.redis_masters > 0 && servers.cluster == nullptr) {
      servers.cluster = std::make_unique<redis_test::RedisCluster>(
          redis_test::RedisCluster::Options{.masters = kind.redis_masters});
    } else if (kind.redis_masters == 0 && kind.redis_shards > 0 && servers.server == nullptr) {
      servers.server = std::make_unique<redis_test::RedisServer>();
    }
    if (kind.slots_move) {
      mover_ = std::thread([this] { move_slots(); });
    }
  }
  ~StorePlace() {
    stop_ = true;
    if (mover_.joinable()) {
      mover_.join();
    }
  }
  StorePlace(const StorePlace&) = delete;
  StorePlace& operator=(const StorePlace&) = delete;

  // The test goes on. In a Cluster a slot moves from time to time meanwhile.
  void note_step() { steps_++; }
  int moves() const { return moves_; }

  // Fails the test, and returns null, if the store cannot be opened.
  std::unique_ptr<workflow::StoreBackend> open(uint64_t session, size_t remembered = 1000,
                                               std::function<void()> changed = nullptr) {
    workflow::StoreBackendOptions options;
    options.remembered = remembered;
    options.clock = &clock;
    options.session = session;
    options.changed = std::move(changed);
    int error = 0;
    std::string message;
    auto backend = kind_.open(place(), options, &error, &message);
    EXPECT_NE(backend, nullptr) << error << ": " << message;
    return backend;
  }

  // For a store with an owner that is open: from now on the place has the files as they are at this
  // moment, as if the process had died.
  void crash() {
    const std::string before = directory_.path(std::to_string(crashes_) + "timers");
    const std::string after = directory_.path(std::to_string(++crashes_) + "timers");
    for (const char* suffix : {"", "-wal", "-queue"}) {
      std::filesystem::copy_file(before + suffix, after + suffix);
    }
  }

  SetClock clock;

 private:
  std::string place() const {
    if (kind_.redis_shards == 0) return directory_.path(std::to_string(crashes_) + "timers");
    const std::string store =
        "namespace=" + namespace_ + "&shards=" + std::to_string(kind_.redis_shards);
    return kind_.redis_masters > 0 ? servers_.cluster->store_url(store)
                                   : servers_.server->url() + "&" + store;
  }

  // After each move the test goes on for some steps, so that it does not wait for most of its time.
  void move_slots() {
    redis_test::RedisCluster& cluster = *servers_.cluster;
    const size_t slot = cluster.slot_of("{" + namespace_ + ":0}:meta");
    for (int seen = 0; !stop_; std::this_thread::sleep_for(std::chrono::microseconds(100))) {
      if (steps_ >= seen + 20) {
        cluster.move(slot, (cluster.owner_of(slot) + 1) % kind_.redis_masters);
        moves_++;
        seen = steps_;
      }
    }
  }

  const BackendKind kind_;
  StoreServers own_servers_;
  StoreServers& servers_;
  const std::string namespace_;
  int crashes_ = 0;
  test_support::FastDir directory_;
  std::atomic<bool> stop_{false};
  std::atomic<int> steps_{0};
  std::atomic<int> moves_{0};
  std::thread mover_;
};

// A store at which a test asks one request after the other.
class RulesFixture : public testing::TestWithParam<BackendKind> {
 protected:
  static constexpr uint64_t kSession = 77;
  static constexpr int64_t kLeaseUs = 30'000'000;

  static void TearDownTestSuite() { servers() = StoreServers(); }

  // The store remembers so many ended timers and requests.
  void reopen(size_t remembered) {
    backend_.reset();
    backend_ = place_.open(kSession, remembered);
  }

  // Carries out the request; `failure` gets its failure if it is not null.
  template <class WHAT>
  WHAT ask(WHAT what, workflow::StoreFailure* failure = nullptr, uint64_t id = 0) {
    workflow::StoreRequest request;
    request.what = std::move(what);
    request.id = {id == 0 ? 0 : kSession, id};
    workflow::StoreRequest* const requests[] = {&request};
    EXPECT_TRUE(backend_->execute(requests));
    if (failure != nullptr) {
      *failure = request.failure;
    } else {
      EXPECT_EQ(request.failure.error, 0) << request.failure.message;
    }
    return std::get<WHAT>(request.what);
  }

  workflow::ScheduleRequest schedule(const std::string& name, int64_t delay_us,
                                     WFTimerPolicy policy = WF_TIMER_APPEND) {
    return ask(schedule_request(name, delay_us, policy));
  }
  workflow::ScheduleRequest schedule_request(const std::string& name, int64_t delay_us,
                                             WFTimerPolicy policy = WF_TIMER_APPEND) const {
    workflow::ScheduleRequest request;
    request.spec = {name, "kind", "payload of " + name, "", -1};
    request.due_us = place_.clock.now_us() + delay_us;
    request.policy = policy;
    return request;
  }
  // A timer that recurs.
  workflow::ScheduleRequest schedule_recurring(const std::string& name) {
    workflow::ScheduleRequest request = schedule_request(name, 0);
    request.spec.repeat = "each full moon";
    return ask(std::move(request));
  }

  std::vector<WFStoreAnswer> cancel(const std::string& name, size_t max = SIZE_MAX) {
    workflow::CancelRequest request;
    request.name = name;
    request.max = max;
    return ask(request).answers;
  }

  std::vector<WFStoreAnswer> reschedule(const std::string& name, int64_t delay_us,
                                        size_t max = SIZE_MAX) {
    workflow::RescheduleRequest request;
    request.name = name;
    request.due_us = place_.clock.now_us() + delay_us;
    request.max = max;
    return ask(request).answers;
  }

  workflow::ClaimRequest claim(size_t max = 100) {
    workflow::ClaimRequest request;
    request.kinds = {{"kind", max, max}};
    request.owner = "worker";
    request.lease_us = kLeaseUs;
    request.fresh_us = 1'000'000;
    return ask(request);
  }
  // Claims the only timer that can be.
  workflow::ClaimRequest::Claimed claim_one() {
    const workflow::ClaimRequest request = claim();
    EXPECT_EQ(request.claimed.size(), 1U);
    return request.claimed.empty() ? workflow::ClaimRequest::Claimed() : request.claimed[0];
  }

  bool finish(const workflow::RunId& run, workflow::FinishRequest::How how,
              int64_t next_us = workflow::kNeverUs) {
    workflow::FinishRequest request;
    request.run = run;
    request.how = how;
    request.next_us = next_us;
    request.reason = how == workflow::FinishRequest::How::kFailed ? "the reason" : "";
    return ask(request).accepted;
  }
  bool acknowledge(const workflow::RunId& run) {
    return finish(run, workflow::FinishRequest::How::kDone);
  }

  workflow::ExtendRequest::Extended extend(const workflow::RunId& run, int64_t lease_us) {
    workflow::ExtendRequest request;
    request.runs = {run};
    request.lease_us = lease_us;
    return ask(request).extended.at(0);
  }

  uint64_t retry_failed(const std::string& name, bool remove = false) {
    workflow::FailedRequest request;
    request.name = name;
    request.remove = remove;
    return ask(request).count;
  }

  std::vector<WFStoreInfo> list(const std::string& prefix = "") {
    workflow::ListRequest request;
    request.prefix = prefix;
    request.max = 1000;
    return ask(request).timers;
  }
  // The stage of the only timer.
  WFStoreStage only_stage() {
    const std::vector<WFStoreInfo> timers = list();
    EXPECT_EQ(timers.size(), 1U);
    return timers.empty() ? WFStoreStage::kFailed : timers[0].stage;
  }

  int64_t now_us() const { return place_.clock.now_us(); }
  void move_us(int64_t us) { place_.clock.move_us(us); }
  // To the first microsecond at which the lease is over.
  void end_lease(const workflow::ClaimRequest::Claimed& claimed) {
    place_.clock.set_us(claimed.lease_end_us);
  }

  // Those of the suite.
  static StoreServers& servers() {
    static StoreServers servers;
    return servers;
  }

  StorePlace place_{GetParam(), servers()};
  std::unique_ptr<workflow::StoreBackend> backend_ = place_.open(kSession);
};

}  // namespace store_test

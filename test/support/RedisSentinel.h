#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

// A master with a replica, and one Sentinel or three that know the master as "main". All of them
// use TLS if the master does.

namespace redis_test {

inline RedisServer::Options replica_of(const RedisServer& master) {
  return {.on = RedisServer::On::kTcp,
          .arguments = {"--replicaof", "127.0.0.1", std::to_string(master.port())},
          .tls = master.tls()};
}

// A silence of a master that no test lives to see.
inline constexpr std::chrono::milliseconds kNever = std::chrono::hours(1);

// Decides alone if the quorum is 1. It takes no master for dead before miss_master_after(): a busy
// one may be silent for a while.
inline RedisServer::Options sentinel_of(const RedisServer& master, int quorum = 1) {
  return {
      .on = RedisServer::On::kSentinel,
      .tls = master.tls(),
      .configuration = "sentinel monitor main 127.0.0.1 " + std::to_string(master.port()) + " " +
                       std::to_string(quorum) + "\nsentinel down-after-milliseconds main " +
                       std::to_string(kNever.count()) + "\nsentinel failover-timeout main 2000\n"};
}

// From now on the Sentinel replaces a master that is silent for so long.
inline void miss_master_after(const RedisServer& sentinel, std::chrono::milliseconds silence) {
  EXPECT_EQ(run(sentinel.url(), {"SENTINEL", "SET", "main", "down-after-milliseconds",
                                 std::to_string(silence.count())})
                .text,
            "OK");
}

// Waits until a replica has what its master knew when this was called.
inline bool is_in_sync(const RedisServer& replica) {
  return test_support::eventually([&] {
    return info(replica.url(), "replication").find("master_link_status:up") != std::string::npos;
  });
}

// Waits until a Sentinel could replace the master: it has to know of a replica.
inline bool knows_a_replica(const RedisServer& sentinel) {
  return test_support::eventually([&] {
    return run(sentinel.url(), {"SENTINEL", "REPLICAS", "main"}).value.arr_size() > 0;
  });
}

// Three Sentinels, of which two have to agree. They replace the master only while the test lets
// them, so that they take no busy server for a dead one at any other time.
class Sentinels {
 public:
  // `master` has one replica.
  explicit Sentinels(const RedisServer& master) {
    for (size_t i = 0; i < kCount; i++) {
      sentinels_.emplace_back(sentinel_of(master, 2));
      // They look, and tell each other what they know, more often than the settings allow. One that
      // has not run for a while does not wait for half a minute before it does anything.
      EXPECT_EQ(
          run(sentinels_[i].url(), {"SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD",
                                    "250", "ASK-PERIOD", "200", "TILT-TRIGGER", "3600000"})
              .text,
          "OK");
    }
    EXPECT_TRUE(wait_until([this] {
      return each_says([](Fields& said) {
        return said["num-other-sentinels"] == std::to_string(kCount - 1) &&
               said["num-slaves"] == "1";
      });
    }));
  }

  // As in the URL of a client.
  std::string addresses() const {
    std::string addresses;
    for (const RedisServer& sentinel : sentinels_) {
      addresses += (addresses.empty() ? "" : ",") + sentinel.address();
    }
    return addresses;
  }

  // From now on they replace a master that is silent for so long.
  void miss_master_after(std::chrono::milliseconds silence) {
    for (const RedisServer& sentinel : sentinels_) {
      redis_test::miss_master_after(sentinel, silence);
    }
  }

  // The latest epoch that any of them knows: it grows whenever the master was replaced.
  uint64_t epoch() {
    uint64_t latest = 0;
    for (size_t i = 0; i < kCount; i++) {
      if (i == stopped_) continue;
      latest = std::max<uint64_t>(latest,
                                  std::strtoull(said_by(i)["config-epoch"].c_str(), nullptr, 10));
    }
    return latest;
  }
  bool wait_for_epoch_after(uint64_t epoch) {
    return wait_until([this, epoch] { return this->epoch() > epoch; });
  }

  // Stops one of them, which then knows nothing of what the others do until it goes on.
  void stop_one(size_t i) {
    stopped_ = i;
    sentinels_[i].signal(SIGSTOP);
  }
  void go_on() {
    if (stopped_) {
      sentinels_[*stopped_].signal(SIGCONT);
      stopped_.reset();
    }
  }

  // Waits until all of them name one of these servers, and the other one is its replica, has its
  // data and could be killed. From then on none of them misses the master. Returns the master, or
  // null if that takes too long. A Sentinel that has not heard of the last change may undo a part
  // of it, and only another change ends that.
  RedisServer* settle(RedisServer& first, RedisServer& second) {
    constexpr auto patient = std::chrono::seconds(5);
    miss_master_after(patient);
    std::optional<Clock::time_point> settled;
    RedisServer* master = nullptr;
    const bool stays = wait_until([&] {
      // Whatever one of them had said to the master before it looked has been done.
      const bool have_looked = settled && have_looked_since(*settled);
      master = master_of(first, second);
      if (settled.has_value() == (master != nullptr)) return have_looked;
      miss_master_after(master != nullptr ? kNever : patient);
      settled = master != nullptr ? std::optional(Clock::now()) : std::nullopt;
      return false;
    });
    return stays ? master : nullptr;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr size_t kCount = 3;

  // What a Sentinel says of the master: names and values.
  using Fields = std::map<std::string, std::string>;

  // Two Sentinels that have voted for each other try again after some seconds, maybe several times.
  static bool wait_until(const std::function<bool()>& condition) {
    return test_support::eventually(
        [&condition] {
          std::this_thread::sleep_for(std::chrono::milliseconds(25));  // leaves them the machine
          return condition();
        },
        std::chrono::minutes(4));
  }

  Fields said_by(size_t i) {
    Fields fields;
    const auto reply = run(sentinels_[i].url(), {"SENTINEL", "MASTER", "main"}).value;
    for (size_t field = 0; field + 1 < reply.arr_size(); field += 2) {
      fields[reply[field].string_value()] = reply[field + 1].string_value();
    }
    return fields;
  }
  bool each_says(const std::function<bool(Fields&)>& what) {
    for (size_t i = 0; i < kCount; i++) {
      Fields said = said_by(i);
      if (!what(said)) return false;
    }
    return true;
  }
  bool have_looked_since(Clock::time_point start) {
    const std::chrono::duration<double, std::milli> most = Clock::now() - start;
    return each_says([most](Fields& said) {
      return std::strtod(said["info-refresh"].c_str(), nullptr) < most.count();
    });
  }
  // The one that all of them name, if all is well with both.
  RedisServer* master_of(RedisServer& first, RedisServer& second) {
    const std::string port = said_by(0)["port"];
    const std::string epoch = said_by(0)["config-epoch"];
    const bool agree = each_says([&](Fields& said) {
      return said["flags"] == "master" && said["port"] == port && said["config-epoch"] == epoch;
    });
    const bool is_first = port == std::to_string(first.port());
    RedisServer& master = is_first ? first : second;
    return agree && serve(master, is_first ? second : first) ? &master : nullptr;
  }
  static bool serve(const RedisServer& master, const RedisServer& replica) {
    const std::string said = info(replica.url(), "replication");
    return info(master.url(), "replication").find("role:master") != std::string::npos &&
           said.find("master_port:" + std::to_string(master.port()) + "\r") != std::string::npos &&
           said.find("master_link_status:up") != std::string::npos &&
           has_written_its_log(master.url()) && has_written_its_log(replica.url());
  }

  std::deque<RedisServer> sentinels_;
  std::optional<size_t> stopped_;
};

}  // namespace redis_test

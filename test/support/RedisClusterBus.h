#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/Tally.h"
#include "workflow/WFRedisSubscriber.h"

namespace redis_test {

// Finds out whether the nodes of a Cluster have read what they have sent each other so far. What a
// client publishes at a node goes to the others on the connections that this node has made to them,
// behind its own messages. Its answers to their pings take the other connections, so only a second
// flush() shows that they were read.
class RedisClusterBus {
 public:
  explicit RedisClusterBus(std::vector<std::string> urls) : urls_(std::move(urls)) {
    for (size_t i = 0; i < urls_.size(); i++) {
      listeners_.push_back(std::make_unique<Listener>(urls_[i]));
    }
  }

  // Waits until each node has read what the others had sent on connections of their own before this
  // was called.
  bool flush() {
    const std::string text = std::to_string(++number_);
    return test_support::eventually([&] {
      // What is published before all nodes listen, or while two are not connected, is lost.
      for (size_t from = 0; from < urls_.size(); from++) {
        run(urls_[from], {"PUBLISH", kChannel, std::to_string(from) + " " + text});
      }
      return std::all_of(listeners_.begin(), listeners_.end(), [&](const auto& listener) {
        return listener->waits_for(text, urls_.size());
      });
    });
  }

 private:
  static constexpr const char* kChannel = "has the bus delivered this?";

  class Listener {
   public:
    explicit Listener(const std::string& url) {
      WFRedisSubscriber subscriber;
      EXPECT_EQ(subscriber.init(url), 0);
      task_ = subscriber.create_subscribe_task(
          {kChannel},
          [this](WFRedisSubscribeTask* task) {
            protocol::RedisValue said;
            task->get_resp()->get_result(said);
            if (said.arr_size() == 3 && said[0].string_value() == "message") {
              add(said[2].string_value());
            }
          },
          [this](WFRedisSubscribeTask*) { ended_.add(); });
      task_->start();
    }
    ~Listener() {
      task_->quit();
      EXPECT_TRUE(ended_.wait_for(1));
      task_->release();
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    // Whether each node's text has come, now or in a moment.
    bool waits_for(const std::string& text, size_t nodes) {
      return test_support::eventually([&] { return has(text, nodes); },
                                      std::chrono::milliseconds(100));
    }

   private:
    void add(const std::string& said) {
      const std::lock_guard lock(mutex_);
      heard_.push_back(said);
    }
    bool has(const std::string& text, size_t nodes) {
      const std::lock_guard lock(mutex_);
      for (size_t from = 0; from < nodes; from++) {
        const std::string wanted = std::to_string(from) + " " + text;
        if (std::find(heard_.begin(), heard_.end(), wanted) == heard_.end()) return false;
      }
      return true;
    }

    std::mutex mutex_;
    std::vector<std::string> heard_;
    test_support::Tally ended_;
    WFRedisSubscribeTask* task_ = nullptr;
  };

  const std::vector<std::string> urls_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  uint64_t number_ = 0;
};

}  // namespace redis_test

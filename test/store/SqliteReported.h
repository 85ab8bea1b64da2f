#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>

#include "support/ChildProcess.h"
#include "support/SqliteKit.h"

namespace test_support {

// Stores and cancels timers for ever, whose names begin with `prefix`. Says before and after each
// step what it does, for a Reported. `failed` is called after a step that has failed.
inline void report_for_ever(workflow::StoreBackend& backend, const std::string& prefix,
                            const std::function<void(const workflow::StoreFailure&)>& failed) {
  std::deque<std::string> stored;
  for (uint64_t number = 1;; number++) {
    const bool cancels = number % 3 == 0 && !stored.empty();
    const std::string name = cancels ? stored.front() : prefix + std::to_string(number);
    say("? " + name);
    workflow::StoreFailure failure;
    if (cancels) {
      carry_out(backend, cancel(name), 0, 9, &failure);
    } else {
      carry_out(backend, schedule(name, backend.now_us() + 3600 * kSecondUs), 0, 9, &failure);
    }
    if (failure.error != 0) {
      say((failure.in_doubt ? "~ " : "= ") + name);
      failed(failure);
    } else if (cancels) {
      say("- " + name);
      stored.pop_front();
    } else {
      say("+ " + name);
      stored.push_back(name);
    }
  }
}

// What a child has said about the timers of the store.
class Reported {
 public:
  // "+ NAME": it is stored. "- NAME": it has ended. "? NAME": one of them is under way. "= NAME":
  // that was refused, and has changed nothing. "~ NAME": that has failed and is in doubt.
  void note(const std::string& line) {
    const std::string name = line.substr(2);
    switch (line.at(0)) {
      case '+':
        stored_.insert(name);
        break;
      case '-':
        stored_.erase(name);
        break;
      case '~':
        in_doubt_.insert(name);
        break;
      case '?':
        doubt_ = name;
        return;
      default:
        break;
    }
    doubt_.clear();
  }
  // The child has ended.
  void end() {
    in_doubt_.insert(doubt_);
    doubt_.clear();
  }

  // Compares the timers of the store whose names begin with `prefix`.
  void expect_in(workflow::StoreBackend& backend, const std::string& prefix = "") const {
    workflow::ListRequest list;
    list.prefix = prefix;
    list.max = 100'000;
    std::set<std::string> found;
    for (const WFStoreInfo& info : carry_out(backend, list).timers) {
      EXPECT_TRUE(found.insert(info.name).second) << info.name;
      EXPECT_TRUE(stored_.count(info.name) || in_doubt_.count(info.name)) << info.name;
    }
    for (const std::string& name : stored_) {
      EXPECT_TRUE(found.count(name) || in_doubt_.count(name)) << name;
    }
  }
  size_t stored() const { return stored_.size(); }

 private:
  std::set<std::string> stored_;
  std::set<std::string> in_doubt_;
  std::string doubt_;
};

}  // namespace test_support

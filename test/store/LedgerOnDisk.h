#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "store/LedgerPlay.h"
#include "store/LedgerProcess.h"
#include "store/LedgerRounds.h"
#include "support/Eventually.h"
#include "support/TestSeed.h"

// What the programs have in common whose processes use a store in a file while its disk has faults.

namespace store_test {

// Used for the names of cases by INSTANTIATE_TEST_SUITE_P.
inline std::string layout_of(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Owned" : "Shared";
}

// For both layouts.
class LedgerOnDisk : public testing::TestWithParam<bool> {
 protected:
  LedgerOnDisk() : ledger_({.leases_end_with_process = is_owned()}) {}

  static bool is_owned() { return GetParam(); }
  void use_directory(const std::string& directory) {
    directory_ = directory;
    ledger_.set_url("sqlite:" + file() + (is_owned() ? "?layout=owned" : ""));
  }
  std::string file() const { return directory_ + "/timers"; }
  virtual void begin_store() {
    ledger_.begin_store();
    std::filesystem::create_directory(ledger_.path("disk"));
    use_directory(ledger_.path("disk"));
  }

  LedgerRounds ledger_;
  test_support::TestRandom random_{test_support::test_seed()};

 private:
  std::string directory_;
};

// Faults that last, while processes use the store, until the test ends them.
class LedgerOfLastingFaults : public LedgerOnDisk {
 protected:
  void begin_store() override {
    LedgerOnDisk::begin_store();
    refused_.clear();
    struck_ = 0;
  }

  // One process, or two where that is possible, with these variables.
  void start_workers(int64_t round, std::vector<std::string> fault = {}) {
    first_ = ledger_.processes();
    children_.clear();
    const std::string name = name_of_round(round);
    const std::string before = name_of_round(round - 1) + 'a';
    fault.push_back("LEDGER_PAUSE_US=" + std::to_string(kPauseUs));
    for (const char process : std::string(is_owned() ? "a" : "ab")) {
      children_.push_back(
          ledger_.start_worker(name + process, process == 'b' ? name + 'a' : before, fault));
    }
  }
  void expect_begun() {
    for (const auto& child : children_) {
      ASSERT_EQ(child->line(), "begun");
    }
    ASSERT_TRUE(go_on(1 + random_.below(50)));
  }

  // Waits until so many more requests of each process were carried out.
  bool go_on(size_t more = 20) {
    for (size_t process = first_; process < ledger_.processes(); process++) {
      if (!ledger_.wait_for_answers(more, process)) return false;
    }
    return true;
  }
  // The same, but however they were answered.
  bool are_answered(size_t more) {
    for (size_t process = first_; process < ledger_.processes(); process++) {
      const size_t enough = ledger_.answers("", process) + more;
      if (!test_support::eventually([&] { return ledger_.answers("", process) >= enough; })) {
        return false;
      }
    }
    return true;
  }
  // Waits until another request of each process was answered in one of these ways.
  bool are_refused(const std::vector<std::string>& ways) {
    for (size_t process = first_; process < ledger_.processes(); process++) {
      const auto count = [&] {
        size_t found = 0;
        for (const std::string& way : ways) {
          found += ledger_.answers(way, process);
        }
        return found;
      };
      if (!test_support::eventually([&] { return count() > refused_[process]; })) return false;
      refused_[process] = count();
    }
    struck_++;
    return true;
  }
  static std::string refused(int error) { return "refused " + std::to_string(error); }
  // Kills them, half of the time.
  bool may_kill() {
    if (random_.one_in(2)) return false;
    children_.clear();
    return true;
  }

  void play_rounds(const std::function<void(int64_t)>& play_round) {
    play(
        ledger_, rounds(kRounds), [this](int64_t) { begin_store(); },
        [&](int64_t round) {
          play_round(round);
          children_.clear();
        },
        [this] { return ledger_.saw_much() && struck_ > 0; });
  }

  // Whether another round may use this store.
  static bool has_next(int64_t round) {
    return (round + 1) % kRoundsOfStore != 0 && round + 1 < rounds(kRounds);
  }

  Children children_;
  size_t first_ = 0;                  // of the processes of this round
  std::map<size_t, size_t> refused_;  // how many answers of a process were found to be that
  size_t struck_ = 0;

 private:
  static constexpr int kPauseUs = 300;
  static constexpr int64_t kRounds = 2;
};

}  // namespace store_test

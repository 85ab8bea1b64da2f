#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace soak {

// What a load was told about each of its timers, and what became of it. It judges the store from
// outside: it knows numbers and times, and shares no code with the store.
//
// Timers are numbered from 0. Every tenth one is due soon and has to start. The others are due much
// later, and have to be cancelled before that.
//
// All memory is taken in advance, so that a load of an hour can be measured beside it.
//
// Thread-safe, but for first_fault(), which comes after everything has ended.
class LoadLedger {
 public:
  explicit LoadLedger(size_t max_timers)
      : timers_(max_timers), soon_due_(max_timers / kSoonOneIn + 1) {}

  static bool is_soon(size_t number) { return number % kSoonOneIn == kSoonOneIn - 1; }

  bool is_full() const { return begun_ >= timers_.size(); }
  size_t kib() const {
    return (timers_.size() * sizeof timers_[0] + soon_due_.size() * sizeof soon_due_[0]) / 1024;
  }

  // Begins a timer that will be asked to be due after `delay`. Returns its number.
  size_t begin(std::chrono::milliseconds delay) {
    const size_t number = begun_++;
    if (is_soon(number)) {
      soon_due_[number / kSoonOneIn] = now_ms() + static_cast<uint32_t>(delay.count());
    }
    return number;
  }
  void is_stored(size_t number) { note(number, kStored, kStored); }
  void is_cancelled(size_t number) { note(number, kCancelled, kCancelled | kStarted); }
  // A second start is right only as another attempt, after a lease that ended because the machine
  // stood still.
  // Returns whether this is the first start.
  bool has_started(size_t number, unsigned attempt) {
    const bool is_first = note(number, kStarted, attempt == 1 ? kCancelled | kStarted : kCancelled);
    if (!is_soon(number) || now_ms() < soon_due_[number / kSoonOneIn]) {
      timers_[number] |= kWrong;
    }
    return is_first;
  }

  // Returns what is wrong with the first timer whose account is not right, or an empty string.
  std::string first_fault() const {
    for (size_t number = 0; number < begun_; number++) {
      const uint8_t expected = kStored | (is_soon(number) ? kStarted : kCancelled);
      if (timers_[number] == expected) continue;
      const unsigned notes = timers_[number];
      return "timer " + std::to_string(number) + (notes & kStored ? ", stored" : ", not stored") +
             (notes & kStarted ? ", started" : "") + (notes & kCancelled ? ", cancelled" : "") +
             (notes & kWrong ? ", early, twice, or started although it was cancelled" : "");
    }
    return {};
  }

 private:
  static constexpr size_t kSoonOneIn = 10;
  static constexpr uint8_t kStored = 1;
  static constexpr uint8_t kCancelled = 2;
  static constexpr uint8_t kStarted = 4;
  static constexpr uint8_t kWrong = 8;

  // Adds a note to a timer that has none of `excluded` so far. Returns whether it is new.
  bool note(size_t number, uint8_t added, int excluded) {
    const uint8_t before = timers_[number].fetch_or(added);
    if (before & excluded) {
      timers_[number] |= kWrong;
    }
    return (before & added) == 0;
  }

  // By the clock that decides when timers are due.
  uint32_t now_ms() const {
    return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now() - begin_)
                                     .count());
  }

  const std::chrono::system_clock::time_point begin_ = std::chrono::system_clock::now();
  std::atomic<size_t> begun_{0};
  std::vector<std::atomic<uint8_t>> timers_;
  std::vector<std::atomic<uint32_t>> soon_due_;  // in milliseconds since `begin_`
};

}  // namespace soak

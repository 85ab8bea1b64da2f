// What every benchmark program needs: clocks, memory, quantiles, options and the one output format.
// Header only and free of the library, so that our programs and the peers' measure the same way.
#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

inline constexpr int64_t kNsPerSecond = 1'000'000'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerUs = 1'000;

inline int64_t read_clock_ns(clockid_t clock) {
  timespec ts;
  clock_gettime(clock, &ts);
  return int64_t{ts.tv_sec} * kNsPerSecond + ts.tv_nsec;
}

inline int64_t now_ns() {
  return read_clock_ns(CLOCK_MONOTONIC);
}

// CPU of all threads of this process: getrusage's figure, in nanoseconds instead of microseconds.
inline int64_t process_cpu_ns() {
  return read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

inline void sleep_ns(int64_t ns) {
  timespec ts{static_cast<time_t>(ns / kNsPerSecond), static_cast<long>(ns % kNsPerSecond)};
  nanosleep(&ts, nullptr);
}

// Resident bytes of a process, 0 if it cannot be read. smaps_rollup walks the page tables: exact,
// unlike statm, whose counters are batched per thread.
inline int64_t resident_bytes(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/smaps_rollup";
  FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return 0;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "Rss: %lld kB", &kib) == 1) break;
  }
  std::fclose(file);
  return kib * 1024;
}

inline int64_t resident_bytes() {
  return resident_bytes(getpid());
}

// Order statistics of a set of samples; takes the samples, since it sorts them.
class Quantiles {
 public:
  explicit Quantiles(std::vector<int64_t> samples) : sorted_(std::move(samples)) {
    std::sort(sorted_.begin(), sorted_.end());
  }

  int64_t min() const { return sorted_.empty() ? 0 : sorted_.front(); }
  int64_t max() const { return sorted_.empty() ? 0 : sorted_.back(); }

  // Nearest rank: the smallest sample that at least `fraction` of all do not exceed.
  int64_t at(double fraction) const {
    if (sorted_.empty()) return 0;
    const auto last = sorted_.size() - 1;
    const auto rank = static_cast<size_t>(fraction * static_cast<double>(sorted_.size()));
    return sorted_[std::min(rank, last)];
  }

 private:
  std::vector<int64_t> sorted_;
};

// Command line of the form --key=value.
class Options {
 public:
  Options(int argc, char** argv) : arguments_(argv + 1, argv + argc) {}

  std::string text(std::string_view key, std::string_view fallback) const {
    for (const std::string& argument : arguments_) {
      const size_t equals = argument.find('=');
      if (equals == std::string::npos || argument.compare(0, 2, "--") != 0) continue;
      if (std::string_view(argument).substr(2, equals - 2) == key) {
        return argument.substr(equals + 1);
      }
    }
    return std::string(fallback);
  }

  int64_t number(std::string_view key, int64_t fallback) const {
    const std::string value = text(key, "");
    return value.empty() ? fallback : std::strtoll(value.c_str(), nullptr, 10);
  }

  size_t count(std::string_view key, size_t fallback) const {
    return static_cast<size_t>(number(key, static_cast<int64_t>(fallback)));
  }

 private:
  std::vector<std::string> arguments_;
};

// One measurement, printed as one line of key=value pairs: "row=R peer=P key=value ...".
class Line {
 public:
  Line(std::string_view row, std::string_view peer) {
    text_.append("row=").append(row).append(" peer=").append(peer);
  }

  Line& add(std::string_view key, int64_t value) {
    text_.append(" ").append(key).append("=").append(std::to_string(value));
    return *this;
  }

  Line& add(std::string_view key, double value) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%.4g", value);
    text_.append(" ").append(key).append("=").append(digits);
    return *this;
  }

  Line& add(std::string_view key, size_t value) { return add(key, static_cast<int64_t>(value)); }

  void print() const {
    std::puts(text_.c_str());
    std::fflush(stdout);
  }

 private:
  std::string text_;
};

inline double per_op(int64_t total, size_t operations) {
  return static_cast<double>(total) / static_cast<double>(operations);
}

// splitmix64: seeded, so that every peer sees the same deadlines and the same order of names.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  // Uniform enough in [0, bound) for bounds far below 2^64.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(next() % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

}  // namespace bench

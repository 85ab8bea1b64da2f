#pragma once

#include <cstddef>
#include <cstdint>

namespace workflow {

// The random choices of a simulation, all from one seed.
//
// The seed also chooses the style, because no single one finds every bug. Three styles switch
// threads at each point with probability 1/2, 1/8 or 1/32, to any ready thread: short races need
// many switches, long ones need a thread to get far undisturbed. The fourth always runs the ready
// thread of the highest priority and now and then drops the running one below all others, which
// lets one thread sleep through everything the others do (probabilistic concurrency testing,
// Burckhardt et al., ASPLOS 2010).
class Interleaving {
 public:
  explicit Interleaving(uint64_t seed);

  uint64_t random() {
    state_ += 0x9e3779b97f4a7c15;
    return mix(state_);
  }
  // Returns a number that is uniform in [0, n). `n` is less than 2^32.
  size_t below(size_t n) { return static_cast<size_t>(((random() >> 32) * n) >> 32); }
  // Returns true once in 2^bits calls on average.
  bool one_in_power_of_two(unsigned bits) { return random() >> (64 - bits) == 0; }

  bool by_priority() const { return by_priority_; }
  // Whether the running thread gives way, or, by priority, drops below all others.
  bool preempt() { return one_in_power_of_two(preempt_bits_); }
  uint64_t new_priority() { return (uint64_t{1} << 32) | (random() >> 32); }
  uint64_t lowest_priority() { return --lowest_; }

  // A bijection that spreads every bit (splitmix64's finalizer).
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
  bool by_priority_;
  unsigned preempt_bits_;
  uint64_t lowest_ = uint64_t{1} << 32;
};

}  // namespace workflow

#pragma once

#include <cstdint>

namespace workflow {

// Decides for the supervisor of a pool when it looks after the workers, what it has to do then, and
// when it may sleep. It knows neither clock, lock nor threads: times are passed in, and so is a
// View of the pool.
//
// Owned by a WorkerPool, whose mutex guards it. The pool has the supervisor's thread, which waits
// until begin_wait() says and then calls look().
//
// Invariants:
// 1. While it watches for kLooks, it looks every kLookNs. It goes on as long as a look can help: a
//    worker keeps items to itself, or work waits although a worker is idle. Afterwards it goes on
//    until kQuietLooks looks in a row have found that no worker took an item.
// 2. While it watches for kGrowth, it looks at starved_since_ns_ + kStarvedNs: that long after the
//    watch began, or after the last look that found that workers had taken items, or that the pool
//    starves. At this look the pool may grow; it does not have to be watched if it cannot. The item
//    that an added thread takes does not count (grew()), so a pool whose items all block grows
//    every kStarvedNs.
// 3. Anybody may ask for more by watch(). Only a look makes it less, and a look that finds nothing
//    to watch for ends in a rest. What was seen before a rest does not count after it.
class PoolSupervisor {
 public:
  // At the second look after a worker has taken them, the items behind one that blocks go to other
  // workers (WorkerPool). With the time that it takes to wake the supervisor and another worker,
  // that is less than a millisecond.
  static constexpr int64_t kLookNs = 300'000;
  static constexpr int kQuietLooks = 2;
  static constexpr int64_t kStarvedNs = 10'000'000;

  // What it watches for. Each value includes those before it: for kLooks, a look does what it does
  // for kGrowth, too.
  enum class Watch { kNone, kGrowth, kLooks };

  // The pool, as a look finds it.
  struct View {
    uint64_t shares = 0;           // how often workers have taken items
    bool work_waits = false;       // in no worker's own queue
    bool has_idle_worker = false;  // one that sleeps or naps, and may work
    bool keeps_items = false;      // a worker has items in its own queue
    int room = 0;                  // how many more workers it may let work
  };
  // What the pool has to do after a look.
  struct Findings {
    bool are_items_long = false;  // to count its items as long: no worker comes to take another
    bool starves = false;         // to let one more worker work
  };

  // To be called when one more worker may work because of Findings::starves. The item that it takes
  // at once does not count as progress.
  void grew() { seen_shares_++; }

  Watch watched() const { return watched_; }
  // Whether it looks every kLookNs.
  bool is_looking() const { return watched_ == Watch::kLooks; }
  // How often it has looked.
  uint64_t looks() const { return looks_; }

  // Makes it watch at least for this. Returns whether its thread has to be notified for that.
  bool watch(Watch least) {
    if (watched_ >= least) return false;
    watched_ = least;
    return true;
  }
  // To be called by the supervisor's thread before it waits for a look, and again when watch() has
  // notified it. watched() must not be kNone. Returns the time of the look. For `shares` see View.
  int64_t begin_wait(uint64_t shares, int64_t now_ns);
  // To be called at that time. Returns what the pool has to do.
  Findings look(const View& view, int64_t now_ns);

 private:
  Watch watched_ = Watch::kNone;
  bool rests_ = true;  // has not begun to wait since it watched for nothing
  uint64_t looks_ = 0;
  uint64_t seen_shares_ = 0;      // View::shares at the last look
  int quiet_looks_ = 0;           // so many in a row could not help, and nothing was taken
  int64_t starved_since_ns_ = 0;  // no worker took an item since then, and the pool has not grown
};

}  // namespace workflow

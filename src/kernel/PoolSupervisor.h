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
// 2. While it watches for kGrowth, it looks when no worker took an item for kStarvedNs, as far as
//    its last look knows. The pool may grow then, and does not have to be watched if it cannot. The
//    item that an added thread takes does not count, so a pool whose items all block grows every
//    kStarvedNs.
// 3. Anybody may ask for more by watch(). Only a look makes it less, and a look that finds nothing
//    to watch for ends in a rest. What was seen before a rest does not count after it.
class PoolSupervisor {
 public:
  // An item may wait behind one that blocks for two of them (WorkerPool). With what it takes to
  // wake the supervisor and another worker, that is less than a millisecond.
  static constexpr int64_t kLookNs = 300'000;
  static constexpr int kQuietLooks = 2;
  static constexpr int64_t kStarvedNs = 10'000'000;

  // What it watches for. The order matters: a look includes what would be done for growth.
  enum class Watch { kNone, kGrowth, kLooks };

  // The pool, as a look finds it.
  struct View {
    uint64_t shares = 0;           // how often workers have taken items
    bool work_waits = false;       // in no worker's own queue
    bool has_idle_worker = false;  // one that sleeps or naps
    bool keeps_items = false;      // a worker has items in its own queue
    int room = 0;                  // how many threads the supervisor may start
  };
  // What the pool has to do after a look.
  struct Findings {
    bool are_items_long = false;  // to count its items as long: no worker comes to take another
    bool starves = false;         // to start a thread
  };

  // After a look that found that the pool starves: a thread was started. It takes an item at once;
  // if that is all that happens, the pool starves still.
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
  // Its thread begins to wait for the next look, and does so again when watch() has notified it.
  // Returns when to look. Only while it watches for something. `shares`: see View.
  int64_t begin_wait(uint64_t shares, int64_t now_ns);
  // That time has come.
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

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"

namespace test_support {

// A random tree of series, parallels, graphs, modules, repeaters and dynamic tasks, with timers, go
// tasks, counters and tasks of its own as leaves; and an account of all of them:
//
// 1. Each is freed exactly once, and has one callback at most; exactly one if nothing was
// cancelled.
// 2. Each task that was dispatched has its callback.
// 3. If a task ran, the series, parallel, graph, module or repeater that contains it has its
//    callback.
// 4. When a parallel, graph or module has its callback, all of its series have had theirs.
// 5. The callbacks of the tasks of one series never run at once.
//
// Callbacks push tasks, sleep, count counters and, if wanted, cancel the series they are in and
// those around it. The root is a parallel or graph in a series of its own. It ends when all leaves
// have ended and open_gate() has been called Options::gates times. Until then other threads may
// cancel() its branches.
//
// It uses no test framework, and no lock around a call to the library. It outlives the tasks.
class RandomStructure {
 public:
  struct Options {
    uint64_t seed = 0;
    uint64_t stream = 0;  // tells apart those of one seed
    int depth = 3;
    bool cancels = true;
    unsigned gates = 0;
  };

  explicit RandomStructure(Options options);
  RandomStructure(const RandomStructure&) = delete;
  RandomStructure& operator=(const RandomStructure&) = delete;

  // Makes the tasks, for the runtime of the calling thread. Must be called first.
  void build();
  // Exactly one of these two must be called, once.
  void start();
  void dismiss();

  size_t branches() const { return branches_.size(); }
  void cancel(size_t branch);
  void open_gate() { gate_->count(); }

  // Counts all counters that wait now, on which other tasks may depend. Returns how many ended.
  int release() { return WFTaskFactory::count_by_name(counter_name_, 1000); }

  // Returns whether the callback of the root's series has run.
  bool ended() const { return root_->callbacks > 0; }
  bool all_freed() const;
  size_t records() const;
  size_t called_back() const;

  // Returns what is wrong, or an empty text. Called after the end, when everything is freed.
  std::string account() const;

 private:
  struct Record {
    Record(const char* name, Record* in, size_t number) : kind(name), parent(in), id(number) {}
    const char* const kind;
    Record* const parent;  // what it is in, or null
    const size_t id;
    std::vector<Record*> series;  // kParallel and the like: those that it consists of
    std::atomic<int> dispatched{0};
    std::atomic<int> callbacks{0};
    std::atomic<int> freed{0};
    std::atomic<bool> busy{false};  // a series: a callback of its tasks is running
  };
  // Counts as freed when the last copy is gone: captured by callbacks.
  using Token = std::shared_ptr<Record>;
  class Leaf;
  class Call;

  Record* add(const char* kind, Record* parent);
  Token token_of(Record* record);
  TestRandom random_of(const Record* record) const {
    return TestRandom(options_.seed * 1'000'003 + options_.stream, record->id);
  }

  // Returns a task for a series, or for the repeater in it.
  SubTask* make_task(TestRandom& random, int depth, Record* parent);
  SubTask* make_leaf(TestRandom& random, Record* parent, bool acts);
  SubTask* make_parallel(TestRandom& random, int depth, Record* record, size_t branches);
  SubTask* make_graph(TestRandom& random, int depth, Record* record, size_t nodes);
  SubTask* make_module(TestRandom& random, int depth, Record* record);
  SubTask* make_repeater(int depth, Record* record);
  SubTask* make_dynamic(int depth, Record* record);
  SeriesWork* make_series(TestRandom& random, int depth, Record* parent);
  void prepare_series(SeriesWork* series, Record* parent);
  void extend_series(TestRandom& random, SeriesWork* series, int depth);

  void act(SubTask* task, const Record* record);
  void require(bool holds, const char* what, const Record* record);

  const Options options_;
  const std::string counter_name_;
  WFCounterTask* gate_ = nullptr;
  SeriesWork* root_series_ = nullptr;
  std::vector<SeriesWork*> branches_;
  Record* root_ = nullptr;
  std::atomic<bool> cancelled_{false};
  bool dismissed_ = false;
  mutable std::mutex mutex_;
  std::deque<Record> records_;  // guarded by mutex_
  std::string problem_;         // guarded by mutex_
};

}  // namespace test_support

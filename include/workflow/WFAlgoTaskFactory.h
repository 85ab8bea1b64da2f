#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>

#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

// The inputs and outputs of algorithm tasks. The ranges belong to the user. They must outlive the
// task, and nothing else may use them while it runs. A range may be empty, and both its ends null.
namespace algorithm {

template <class T>
struct SortInput {
  T *first;
  T *last;
};
template <class T>
struct SortOutput {
  T *first;
  T *last;
};

template <class T>
struct MergeInput {
  T *first1;
  T *last1;
  T *first2;
  T *last2;
  T *d_first;
};
template <class T>
struct MergeOutput {
  T *first;
  T *last;
};

template <class T>
struct ShuffleInput {
  T *first;
  T *last;
};
template <class T>
struct ShuffleOutput {
  T *first;
  T *last;
};

template <class T>
struct RemoveInput {
  T *first;
  T *last;
};
template <class T>
struct RemoveOutput {
  T *first;
  T *last;
};

template <class T>
struct UniqueInput {
  T *first;
  T *last;
};
template <class T>
struct UniqueOutput {
  T *first;
  T *last;
};

template <class T>
struct ReverseInput {
  T *first;
  T *last;
};
template <class T>
struct ReverseOutput {
  T *first;
  T *last;
};

template <class T>
struct RotateInput {
  T *first;
  T *middle;
  T *last;
};
template <class T>
struct RotateOutput {
  T *first;
  T *last;
};

}  // namespace algorithm

template <class T>
using WFSortTask = WFThreadTask<algorithm::SortInput<T>, algorithm::SortOutput<T>>;
template <class T>
using WFMergeTask = WFThreadTask<algorithm::MergeInput<T>, algorithm::MergeOutput<T>>;
template <class T>
using WFShuffleTask = WFThreadTask<algorithm::ShuffleInput<T>, algorithm::ShuffleOutput<T>>;
template <class T>
using WFRemoveTask = WFThreadTask<algorithm::RemoveInput<T>, algorithm::RemoveOutput<T>>;
template <class T>
using WFUniqueTask = WFThreadTask<algorithm::UniqueInput<T>, algorithm::UniqueOutput<T>>;
template <class T>
using WFReverseTask = WFThreadTask<algorithm::ReverseInput<T>, algorithm::ReverseOutput<T>>;
template <class T>
using WFRotateTask = WFThreadTask<algorithm::RotateInput<T>, algorithm::RotateOutput<T>>;

template <class T>
using sort_callback_t = std::function<void(WFSortTask<T> *)>;
template <class T>
using merge_callback_t = std::function<void(WFMergeTask<T> *)>;
template <class T>
using shuffle_callback_t = std::function<void(WFShuffleTask<T> *)>;
template <class T>
using remove_callback_t = std::function<void(WFRemoveTask<T> *)>;
template <class T>
using unique_callback_t = std::function<void(WFUniqueTask<T> *)>;
template <class T>
using reverse_callback_t = std::function<void(WFReverseTask<T> *)>;
template <class T>
using rotate_callback_t = std::function<void(WFRotateTask<T> *)>;

namespace workflow {

// Sorts a range in rounds of go tasks that run side by side. In the first round each task sorts a
// piece; in each later round each task merges two neighbours. A round begins when the previous one
// has ended completely, so the stack does not grow with the rounds. An aborted round ends the task.
//
// Between dispatch() and its end the task waits in no queue. Between the rounds only the callback
// of the round's parallel uses it.
template <class T, class CMP>
class ParallelSortTask final : public WFSortTask<T> {
 public:
  // The smallest piece that is worth a task.
  static constexpr size_t kGrain = 8192;

  ParallelSortTask(const std::string &queue_name, CMP &&compare, sort_callback_t<T> &&callback)
      : WFSortTask<T>(ComputePlace::named(queue_name), TimeSpan::never(), std::move(callback)),
        queue_name_(queue_name),
        compare_(std::move(compare)) {}

 protected:
  ~ParallelSortTask() override = default;

  void dispatch() override {
    pieces_ = std::min(ComputePlace::named(queue_name_).threads(), size() / kGrain);
    if (pieces_ > 1) {
      begin_round();
    } else {
      WFSortTask<T>::dispatch();
    }
  }

  // Sorts the whole range as one task.
  void compute() override {
    std::sort(this->input_.first, this->input_.last, *compare_);
    set_output();
  }
  void forget_computation() override {
    this->callback_ = nullptr;  // it has been called
    compare_.reset();
  }

 private:
  size_t size() const { return static_cast<size_t>(this->input_.last - this->input_.first); }

  T *begin_of(size_t piece) const {
    return this->input_.first + size() / pieces_ * piece + std::min(piece, size() % pieces_);
  }

  void begin_round() {
    ParallelWork *round =
        Workflow::create_parallel_work([this](const ParallelWork *) { end_round(); });
    for (size_t i = 0; i < pieces_; i += std::max<size_t>(2 * sorted_, 1)) {
      if (sorted_ == 0 || i + sorted_ < pieces_) {
        round->add_series(Workflow::create_series_work(step(i), nullptr));
      }
    }
    SeriesWork *const inside = Workflow::create_series_work(round, nullptr);
    this->share_scope(inside);
    inside->start();
  }

  // The function of a step may outlive this task, for instance after a deadline, so it captures
  // everything it needs.
  WFGoTask *step(size_t i) {
    T *const begin = begin_of(i);
    T *const middle = begin_of(i + std::max<size_t>(sorted_, 1));
    T *const end = sorted_ == 0 ? middle : begin_of(std::min(i + 2 * sorted_, pieces_));
    WFGoTask *task =
        WFTaskFactory::create_go_task(queue_name_, [begin, middle, end, compare = *compare_] {
          if (middle == end) {
            std::sort(begin, end, compare);
          } else {
            std::inplace_merge(begin, middle, end, compare);
          }
        });
    task->set_callback([this](WFGoTask *done) {
      if (done->get_error() != 0) failed_.store(done->get_error(), std::memory_order_relaxed);
      if (done->get_state() == WFT_STATE_ABORTED) aborted_.store(true, std::memory_order_relaxed);
    });
    return task;
  }

  void end_round() {
    sorted_ = std::max<size_t>(2 * sorted_, 1);
    if (const int failure = failed_.load(std::memory_order_relaxed)) {
      this->state = WFT_STATE_SYS_ERROR;
      this->error = failure;
    } else if (aborted_.load(std::memory_order_relaxed)) {
      this->state = WFT_STATE_ABORTED;
    } else if (sorted_ < pieces_) {
      begin_round();
      return;
    } else {
      this->state = WFT_STATE_SUCCESS;
      set_output();
    }
    this->subtask_done();
  }

  void set_output() { this->output_ = {this->input_.first, this->input_.last}; }

  const std::string queue_name_;
  std::optional<CMP> compare_;  // always, but for a task that will never begin
  // Written between rounds.
  size_t pieces_ = 0;
  size_t sorted_ = 0;  // the number of pieces in each sorted group of neighbours; 0: none yet
  std::atomic<bool> aborted_{false};
  std::atomic<int> failed_{0};
};

}  // namespace workflow

// Creates tasks that run an algorithm of <algorithm> on a computing thread, in the queue of that
// name. They end as go tasks do, for instance with ABORTED if the library stopped first. After
// SUCCESS, get_output() is the range that results from the algorithm; otherwise it is two nulls.
// The range may be replaced in get_input() before the start. Any thread may create these tasks. T
// must be movable; only a merge also needs it to be copyable. The arguments of the algorithm (a
// comparator, a predicate, a value) must be copyable and must not throw.
class WFAlgoTaskFactory {
 private:
  // A parameter that takes no part in deducing T: lambdas convert to it.
  template <class T>
  using Given = std::common_type_t<T>;

 public:
  // Sorts [first, last): O(n log n) comparisons, not stable.
  template <class T>
  static WFSortTask<T> *create_sort_task(const std::string &queue_name, T *first, T *last,
                                         Given<sort_callback_t<T>> callback) {
    return create_sort_task(queue_name, first, last, std::less<T>(), std::move(callback));
  }
  template <class T, class CMP>
  static WFSortTask<T> *create_sort_task(const std::string &queue_name, T *first, T *last,
                                         CMP compare, Given<sort_callback_t<T>> callback) {
    return on_range<WFSortTask<T>>(queue_name, {first, last}, std::move(callback),
                                   [compare](auto *in, auto *out) {
                                     std::sort(in->first, in->last, compare);
                                     *out = {in->first, in->last};
                                   });
  }

  // Sorts [first, last) on all computing threads: pieces are sorted side by side and then merged.
  // The merge uses extra memory for half of the range, if it is available. Copies of `compare` are
  // called concurrently. A small range is sorted as by create_sort_task(). The callback runs where
  // the last piece ended, or on a handler thread. After ABORTED the range holds the same elements
  // in any order. After a deadline, pieces that have begun may still be using the range, unless a
  // coroutine waits for the task.
  template <class T>
  static WFSortTask<T> *create_psort_task(const std::string &queue_name, T *first, T *last,
                                          Given<sort_callback_t<T>> callback) {
    return create_psort_task(queue_name, first, last, std::less<T>(), std::move(callback));
  }
  template <class T, class CMP>
  static WFSortTask<T> *create_psort_task(const std::string &queue_name, T *first, T *last,
                                          CMP compare, Given<sort_callback_t<T>> callback) {
    auto *task =
        new workflow::ParallelSortTask<T, CMP>(queue_name, std::move(compare), std::move(callback));
    *task->get_input() = {first, last};
    return task;
  }

  // Copies two sorted ranges, merged, to the range that begins at `d_first`, which must overlap
  // neither. If elements are equal, those of the first range come first. O(n).
  template <class T>
  static WFMergeTask<T> *create_merge_task(const std::string &queue_name, T *first1, T *last1,
                                           T *first2, T *last2, T *d_first,
                                           Given<merge_callback_t<T>> callback) {
    return create_merge_task(queue_name, first1, last1, first2, last2, d_first, std::less<T>(),
                             std::move(callback));
  }
  template <class T, class CMP>
  static WFMergeTask<T> *create_merge_task(const std::string &queue_name, T *first1, T *last1,
                                           T *first2, T *last2, T *d_first, CMP compare,
                                           Given<merge_callback_t<T>> callback) {
    return on_range<WFMergeTask<T>>(
        queue_name, {first1, last1, first2, last2, d_first}, std::move(callback),
        [compare](auto *in, auto *out) {
          *out = {in->d_first,
                  std::merge(in->first1, in->last1, in->first2, in->last2, in->d_first, compare)};
        });
  }

  // Puts [first, last) in random order, with a generator of its own or with a copy of `generator`.
  // O(n).
  template <class T>
  static WFShuffleTask<T> *create_shuffle_task(const std::string &queue_name, T *first, T *last,
                                               Given<shuffle_callback_t<T>> callback) {
    return create_shuffle_task(queue_name, first, last, std::mt19937_64(std::random_device()()),
                               std::move(callback));
  }
  template <class T, class URBG>
  static WFShuffleTask<T> *create_shuffle_task(const std::string &queue_name, T *first, T *last,
                                               URBG generator,
                                               Given<shuffle_callback_t<T>> callback) {
    return on_range<WFShuffleTask<T>>(queue_name, {first, last}, std::move(callback),
                                      [generator](auto *in, auto *out) {
                                        std::shuffle(in->first, in->last, URBG(generator));
                                        *out = {in->first, in->last};
                                      });
  }

  // Moves the elements that are to be kept to the front, in the same order: those that are not
  // equal to `value`, or for which the predicate is false. They are the output. The elements behind
  // them are left as if moved from. O(n).
  template <class T>
  static WFRemoveTask<T> *create_remove_task(const std::string &queue_name, T *first, T *last,
                                             Given<T> value, Given<remove_callback_t<T>> callback) {
    return create_remove_if_task(
        queue_name, first, last, [value](const T &each) { return each == value; },
        std::move(callback));
  }
  template <class T, class PRED>
  static WFRemoveTask<T> *create_remove_if_task(const std::string &queue_name, T *first, T *last,
                                                PRED predicate,
                                                Given<remove_callback_t<T>> callback) {
    return on_range<WFRemoveTask<T>>(
        queue_name, {first, last}, std::move(callback), [predicate](auto *in, auto *out) {
          *out = {in->first, std::remove_if(in->first, in->last, predicate)};
        });
  }

  // Keeps the first element of each run of equal elements, or of elements for which `equal` holds.
  // The output is what is kept. O(n).
  template <class T>
  static WFUniqueTask<T> *create_unique_task(const std::string &queue_name, T *first, T *last,
                                             Given<unique_callback_t<T>> callback) {
    return create_unique_task(queue_name, first, last, std::equal_to<T>(), std::move(callback));
  }
  template <class T, class PRED>
  static WFUniqueTask<T> *create_unique_task(const std::string &queue_name, T *first, T *last,
                                             PRED equal, Given<unique_callback_t<T>> callback) {
    return on_range<WFUniqueTask<T>>(queue_name, {first, last}, std::move(callback),
                                     [equal](auto *in, auto *out) {
                                       *out = {in->first, std::unique(in->first, in->last, equal)};
                                     });
  }

  // Reverses [first, last). O(n).
  template <class T>
  static WFReverseTask<T> *create_reverse_task(const std::string &queue_name, T *first, T *last,
                                               Given<reverse_callback_t<T>> callback) {
    return on_range<WFReverseTask<T>>(queue_name, {first, last}, std::move(callback),
                                      [](auto *in, auto *out) {
                                        std::reverse(in->first, in->last);
                                        *out = {in->first, in->last};
                                      });
  }

  // Exchanges [first, middle) and [middle, last). The output is the new place of the former. O(n).
  template <class T>
  static WFRotateTask<T> *create_rotate_task(const std::string &queue_name, T *first, T *middle,
                                             T *last, Given<rotate_callback_t<T>> callback) {
    return on_range<WFRotateTask<T>>(
        queue_name, {first, middle, last}, std::move(callback), [](auto *in, auto *out) {
          *out = {std::rotate(in->first, in->middle, in->last), in->last};
        });
  }

 private:
  template <class TASK>
  struct Types;
  template <class IN, class OUT>
  struct Types<WFThreadTask<IN, OUT>> {
    using Input = IN;
    using Factory = WFThreadTaskFactory<IN, OUT>;
  };

  template <class TASK, class ROUTINE>
  static TASK *on_range(const std::string &queue_name, typename Types<TASK>::Input input,
                        std::function<void(TASK *)> &&callback, ROUTINE &&routine) {
    TASK *task = Types<TASK>::Factory::create_thread_task(
        queue_name, std::forward<ROUTINE>(routine), std::move(callback));
    *task->get_input() = input;
    return task;
  }
};

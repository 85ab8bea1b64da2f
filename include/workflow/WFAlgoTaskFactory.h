#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <type_traits>
#include <utility>

#include "workflow/WFTaskFactory.h"
#include "workflow/detail/ParallelSortTask.h"

// The inputs and outputs of algorithm tasks. The ranges belong to the user. They must outlive the
// task, and nothing else may use them while it runs. A range may be empty, and both its ends null.
namespace algorithm {

// The algorithms are only names, so that the tasks of each have a type of their own.
template <class T, class ALGORITHM>
struct Range {
  T *first;
  T *last;
};

template <class T>
using SortInput = Range<T, class Sort>;
template <class T>
using SortOutput = Range<T, class Sort>;

template <class T>
struct MergeInput {
  T *first1;
  T *last1;
  T *first2;
  T *last2;
  T *d_first;
};
template <class T>
using MergeOutput = Range<T, class Merge>;

template <class T>
using ShuffleInput = Range<T, class Shuffle>;
template <class T>
using ShuffleOutput = Range<T, class Shuffle>;

template <class T>
using RemoveInput = Range<T, class Remove>;
template <class T>
using RemoveOutput = Range<T, class Remove>;

template <class T>
using UniqueInput = Range<T, class Unique>;
template <class T>
using UniqueOutput = Range<T, class Unique>;

template <class T>
using ReverseInput = Range<T, class Reverse>;
template <class T>
using ReverseOutput = Range<T, class Reverse>;

template <class T>
struct RotateInput {
  T *first;
  T *middle;
  T *last;
};
template <class T>
using RotateOutput = Range<T, class Rotate>;

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

// Creates tasks that run an algorithm of <algorithm> on a computing thread, in the queue of that
// name. They end as go tasks do, for instance with ABORTED if the library stopped first. After
// SUCCESS, get_output() is the range that results from the algorithm. After ABORTED it is two
// nulls. After SYS_ERROR with ETIMEDOUT do not use the output or the range: an algorithm that has
// begun runs on and may still be writing both, unless a coroutine waits for the task. The range may
// be replaced in get_input() before the start. Any thread may create these tasks. T must be
// movable; only a merge also needs it to be copyable. The arguments of the algorithm (a comparator,
// a predicate, a value) must be copyable and must not throw.
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
  // called concurrently. A small range is sorted as by create_sort_task(), and so is any range if
  // there is no memory for its pieces. The callback runs where the last piece ended, or on a
  // handler thread. After ABORTED the range holds the same elements in any order. After a deadline,
  // pieces that have begun may still be using the range, unless a coroutine waits for the task.
  template <class T>
  static WFSortTask<T> *create_psort_task(const std::string &queue_name, T *first, T *last,
                                          Given<sort_callback_t<T>> callback) {
    return create_psort_task(queue_name, first, last, std::less<T>(), std::move(callback));
  }
  template <class T, class CMP>
  static WFSortTask<T> *create_psort_task(const std::string &queue_name, T *first, T *last,
                                          CMP compare, Given<sort_callback_t<T>> callback) {
    auto *task = new workflow::ParallelSortTask<WFSortTask<T>, CMP>(queue_name, std::move(compare),
                                                                    std::move(callback));
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

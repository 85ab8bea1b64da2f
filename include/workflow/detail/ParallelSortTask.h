#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

namespace workflow {

// Sorts a range in rounds of go tasks that run side by side. In the first round each task sorts a
// piece; in each later round each task merges two neighbours. A round begins when the previous one
// has ended completely, so the stack does not grow with the rounds. An aborted round ends the task.
// Where there is no memory for a round, the task sorts the whole range itself.
//
// Between dispatch() and its end the task waits in no queue. Between the rounds only the callback
// of the round's parallel uses it.
template <class TASK, class CMP>  // TASK is a WFSortTask<T>
class ParallelSortTask final : public TASK {
  using T = std::remove_pointer_t<decltype(std::declval<TASK &>().get_input()->first)>;

 public:
  // The smallest piece that is worth a task.
  static constexpr size_t kGrain = 8192;

  ParallelSortTask(const std::string &queue_name, CMP &&compare,
                   std::function<void(TASK *)> &&callback)
      : TASK(ComputePlace::named(queue_name), TimeSpan::never(), std::move(callback)),
        queue_name_(queue_name),
        compare_(std::move(compare)) {}

 protected:
  ~ParallelSortTask() override = default;

  void dispatch() override {
    pieces_ = std::min(ComputePlace::named(queue_name_).threads(), size() / kGrain);
    if (pieces_ > 1) {
      begin_round();
    } else {
      TASK::dispatch();
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

  struct Dismiss {
    template <class WORK>
    void operator()(WORK *work) const {
      work->dismiss();
    }
  };
  template <class WORK>
  using Unstarted = std::unique_ptr<WORK, Dismiss>;

  void begin_round() {
    SeriesWork *round = nullptr;
    try {
      round = create_round();
    } catch (const std::bad_alloc &) {
      TASK::dispatch();
      return;
    }
    this->share_scope(round);
    round->start();
  }

  SeriesWork *create_round() {
    Unstarted<ParallelWork> steps(
        Workflow::create_parallel_work([this](const ParallelWork *) { end_round(); }));
    for (size_t i = 0; i < pieces_; i += std::max<size_t>(2 * sorted_, 1)) {
      if (sorted_ == 0 || i + sorted_ < pieces_) {
        Unstarted<WFGoTask> task(step(i));
        Unstarted<SeriesWork> series(Workflow::create_series_work(task.get(), nullptr));
        static_cast<void>(task.release());
        steps->add_series(series.get());
        static_cast<void>(series.release());
      }
    }
    SeriesWork *const round = Workflow::create_series_work(steps.get(), nullptr);
    static_cast<void>(steps.release());
    return round;
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
  // Relaxed: end_round() reads them after all steps, ordered by ParallelTask::remaining_.
  std::atomic<bool> aborted_{false};
  std::atomic<int> failed_{0};
};

}  // namespace workflow

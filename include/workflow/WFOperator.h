#pragma once

#include "workflow/Workflow.h"

// Composition by operators: `a > b` is a series, `a * b` is a parallel. Each operand is a task, a
// pointer to a task, a series or a parallel, in any combination except two raw pointers. No pointer
// may be null.
//
// An operand that is a series (for >) or a parallel (for *) is extended and returned, on whichever
// side it stands. If both operands are, the left one is extended: in `series > series` the right
// one becomes a parallel with one branch, and in `parallel * parallel` the right one becomes a
// branch of the left one.
//
// If memory runs out, the operator throws std::bad_alloc. What the expression has made before is
// lost then, and its operands with it. Where that matters, call the functions of Workflow.h.

static inline SeriesWork &operator>(SubTask &x, SubTask &y) {
  SeriesWork *series = Workflow::create_series_work(&x, nullptr);
  series->push_back(&y);
  return *series;
}
static inline SeriesWork &operator>(SubTask &x, SubTask *y) {
  return x > *y;
}
static inline SeriesWork &operator>(SubTask *x, SubTask &y) {
  return *x > y;
}
static inline SeriesWork &operator>(SeriesWork &x, SubTask &y) {
  x.push_back(&y);
  return x;
}
static inline SeriesWork &operator>(SeriesWork &x, SubTask *y) {
  return x > *y;
}
static inline SeriesWork &operator>(SubTask &x, SeriesWork &y) {
  y.push_first(&x);
  return y;
}
static inline SeriesWork &operator>(SubTask *x, SeriesWork &y) {
  return *x > y;
}
static inline SeriesWork &operator>(SeriesWork &x, SeriesWork &y) {
  SeriesWork *all[1] = {&y};
  return x > *Workflow::create_parallel_work(all, 1, nullptr);
}

static inline ParallelWork &operator*(SubTask &x, SubTask &y) {
  SeriesWork *all[2] = {Workflow::create_series_work(&x, nullptr),
                        Workflow::create_series_work(&y, nullptr)};
  return *Workflow::create_parallel_work(all, 2, nullptr);
}
static inline ParallelWork &operator*(SubTask &x, SubTask *y) {
  return x * *y;
}
static inline ParallelWork &operator*(SubTask *x, SubTask &y) {
  return *x * y;
}
static inline ParallelWork &operator*(SeriesWork &x, SeriesWork &y) {
  SeriesWork *all[2] = {&x, &y};
  return *Workflow::create_parallel_work(all, 2, nullptr);
}
static inline ParallelWork &operator*(SubTask &x, SeriesWork &y) {
  return *Workflow::create_series_work(&x, nullptr) * y;
}
static inline ParallelWork &operator*(SubTask *x, SeriesWork &y) {
  return *x * y;
}
static inline ParallelWork &operator*(SeriesWork &x, SubTask &y) {
  return x * *Workflow::create_series_work(&y, nullptr);
}
static inline ParallelWork &operator*(SeriesWork &x, SubTask *y) {
  return x * *y;
}
static inline ParallelWork &operator*(ParallelWork &x, SeriesWork &y) {
  x.add_series(&y);
  return x;
}
static inline ParallelWork &operator*(ParallelWork &x, SubTask &y) {
  return x * *Workflow::create_series_work(&y, nullptr);
}
static inline ParallelWork &operator*(ParallelWork &x, SubTask *y) {
  return x * *y;
}
static inline ParallelWork &operator*(SeriesWork &x, ParallelWork &y) {
  return y * x;
}
static inline ParallelWork &operator*(SubTask &x, ParallelWork &y) {
  return y * x;
}
static inline ParallelWork &operator*(SubTask *x, ParallelWork &y) {
  return y * x;
}
static inline ParallelWork &operator*(ParallelWork &x, ParallelWork &y) {
  return x * *Workflow::create_series_work(&y, nullptr);
}

#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "workflow/WFCo.h"
#include "workflow/WFEnd.h"
#include "workflow/detail/CoCall.h"
#include "workflow/detail/CoGroup.h"
#include "workflow/detail/Duration.h"

// The parts of wf::all(), any(), each(), within() and scope(). Each of these is a coroutine that
// puts branches into a group, waits for the group, and collects the results that the branches have
// left in its frame.

namespace workflow {

// The type in which a result can be stored: std::monostate for void, std::reference_wrapper for a
// reference.
template <class T>
struct CoStoredOf {
  using type = T;
};
template <>
struct CoStoredOf<void> {
  using type = std::monostate;
};
template <class T>
struct CoStoredOf<T &> {
  using type = std::reference_wrapper<T>;
};
template <class T>
using CoStored = typename CoStoredOf<T>::type;

// The place where a branch leaves its result. It is in the frame of the coroutine that waits for
// the group.
template <class T>
struct CoSlot {
  std::optional<CoStored<T>> value;
  std::exception_ptr exception;

  void fill(CoPromise<T> *frame) noexcept {
    try {
      if constexpr (std::is_void_v<T>) {
        value.emplace();
      } else {
        value.emplace(frame->take());
      }
    } catch (...) {
      exception = std::current_exception();
    }
  }
};

// Owns a coroutine that has not begun.
template <class T>
class CoUnstarted {
 public:
  explicit CoUnstarted(CoPromise<T> *frame) : frame_(frame) {}
  CoUnstarted(CoUnstarted &&other) noexcept : frame_(other.release()) {}
  CoUnstarted &operator=(CoUnstarted &&) = delete;
  ~CoUnstarted() {
    if (frame_) frame_->destroy();
  }
  CoPromise<T> *release() { return std::exchange(frame_, nullptr); }

 private:
  CoPromise<T> *frame_;
};

// A coroutine that waits for a task and returns its outcome.
template <class W>
struct CoOutcomeOf {
  using Awaiter = decltype(std::declval<CoAwaits &>().await_transform(std::declval<W>()));
  using type = decltype(std::declval<Awaiter &>().await_resume());
};
// Owns a work that is not awaited yet, because the coroutine that waits for it may be destroyed
// before it has begun. The works of the library own their tasks themselves.
template <class W>
class CoOwned {
 public:
  explicit CoOwned(W &&work) : work_(std::move(work)) {
    if constexpr (std::is_convertible_v<W, const SubTask *>) CoTask::check_awaitable(work_);
  }
  CoOwned(CoOwned &&other) noexcept
      : work_(std::move(other.work_)), owns_(std::exchange(other.owns_, false)) {}
  CoOwned &operator=(CoOwned &&) = delete;
  ~CoOwned() {
    if (!owns_) return;
    if constexpr (std::is_convertible_v<W, SubTask *>) {
      CoTask::drop(work_);
    } else if constexpr (std::is_convertible_v<W, SeriesWork *>) {
      if (work_) work_->dismiss();
    }
  }
  W &&take() {
    owns_ = false;
    return std::move(work_);
  }

 private:
  W work_;
  bool owns_ = true;
};

template <class BACK>
struct CoOutcomeOf<CoGrant<BACK>> {
  using type = CoGranted<BACK>;
};

template <class W>
WFCo<typename CoOutcomeOf<W>::type> co_await_task(CoOwned<W> work) {
  if constexpr (kCoIsGranted<typename CoOutcomeOf<W>::type>) {
    auto unseen = work.take().unseen();
    co_return co_await std::move(unseen);
  } else {
    co_return co_await work.take();
  }
}

// Returns an owner of a work. This throws nothing. So all of several works have owners before the
// first coroutine is made, which may fail for lack of memory.
template <class T>
CoUnstarted<T> co_own(WFCo<T> &co) {
  CoPromise<T> *const frame = CoAccess::release(co);
  if (!frame) co_misuse("a coroutine that was awaited before is given away");
  return CoUnstarted<T>(frame);
}
template <class W>
CoOwned<W> co_own(W &work) {
  return CoOwned<W>(std::move(work));
}

// Returns a coroutine that waits for a work.
template <class T>
CoUnstarted<T> co_unstarted(CoUnstarted<T> &&owned) {
  return std::move(owned);
}
template <class W>
auto co_unstarted(CoOwned<W> &&owned) {
  auto co = co_await_task(std::move(owned));
  return co_own(co);
}
template <class... OWNED>
auto co_all_unstarted(OWNED... owned) {
  return std::tuple<decltype(co_unstarted(std::move(owned)))...>(co_unstarted(std::move(owned))...);
}
template <class W>
struct CoResultOfWork {
  using type = typename CoOutcomeOf<W>::type;
};
template <class T>
struct CoResultOfWork<WFCo<T>> {
  using type = T;
};
template <class W>
using CoWorkResult = typename CoResultOfWork<W>::type;

enum class CoPolicy {
  kAll,    // an exception ends the group
  kEnded,  // an exception is a result
  kFirst   // the first to end, in whichever way, ends the group
};

// A branch that runs a coroutine which exists already.
template <class T>
class CoChildBranch final : public CoBranch {
 public:
  CoChildBranch(CoUnstarted<T> child, CoSlot<T> *slot, CoPolicy policy, size_t index)
      : child_(std::move(child)), slot_(slot), policy_(policy), index_(index) {}

 private:
  ~CoChildBranch() override = default;

  CoFrame *make_frame() override { return frame_ = child_.release(); }
  void ended(CoFrame * /*frame*/, std::exception_ptr exception) noexcept override {
    if (policy_ == CoPolicy::kFirst && !group()->claim_first(index_)) return;
    if (exception && policy_ == CoPolicy::kAll) {
      group()->fail(std::move(exception));
    } else if (exception) {
      slot_->exception = std::move(exception);
    } else {
      slot_->fill(frame_);
    }
  }

  CoUnstarted<T> child_;
  CoPromise<T> *frame_ = nullptr;
  CoSlot<T> *const slot_;
  const CoPolicy policy_;
  const size_t index_;
};

// A branch that calls a function to get its coroutine. What the coroutine returns is dropped.
template <class F, class... A>
class CoStartedBranch final : public CoBranch {
 public:
  explicit CoStartedBranch(F &&f, A &&...args) : call_(std::move(f), std::move(args)...) {}

 private:
  ~CoStartedBranch() override = default;

  CoFrame *make_frame() override {
    return co_frame_of([this]() -> decltype(auto) { return call_.call(); });
  }
  void ended(CoFrame * /*frame*/, std::exception_ptr exception) noexcept override {
    if (exception) group()->fail(std::move(exception));
  }

  CoCallable<F, A...> call_;
};

// Throws what a branch of the group has thrown, or ECANCELED if a branch was dropped because its
// series was cancelled.
inline void co_rethrow(const CoGroupEnd &end) {
  if (end.exception) std::rethrow_exception(end.exception);
}
template <class T>
CoStored<T> co_result(CoSlot<T> &slot) {
  if (slot.exception) std::rethrow_exception(std::move(slot.exception));
  if (!slot.value) throw WFError(WFEnd{WFT_STATE_SYS_ERROR, ECANCELED});
  return *std::move(slot.value);
}

inline Duration co_no_limit() {
  return std::chrono::nanoseconds(-1);
}

// Deletes a group that is not awaited because an exception came first.
class CoNewGroup {
 public:
  explicit CoNewGroup(Duration limit) : group_(CoGroup::create(limit)) {}
  CoNewGroup(const CoNewGroup &) = delete;
  CoNewGroup &operator=(const CoNewGroup &) = delete;
  ~CoNewGroup() {
    if (group_) group_->dismiss();
  }
  CoGroup *operator->() const { return group_; }
  CoGroup *release() { return std::exchange(group_, nullptr); }

 private:
  CoGroup *group_;
};

template <class... T, size_t... I>
void co_add(CoNewGroup &group, std::tuple<CoUnstarted<T>...> &children,
            std::tuple<CoSlot<T>...> &slots, CoPolicy policy, std::index_sequence<I...>) {
  (group->add(
       new CoChildBranch<T>(std::move(std::get<I>(children)), &std::get<I>(slots), policy, I)),
   ...);
}

template <class... T>
WFCo<std::tuple<CoStored<T>...>> co_all(std::tuple<CoUnstarted<T>...> children) {
  std::tuple<CoSlot<T>...> slots;
  CoNewGroup group(co_no_limit());
  co_add(group, children, slots, CoPolicy::kAll, std::index_sequence_for<T...>());
  const auto ended = co_await group.release();
  co_rethrow(*ended.value);
  co_return std::apply(
      [](CoSlot<T> &...slot) { return std::tuple<CoStored<T>...>(co_result(slot)...); }, slots);
}

// The type that wf::all_ended() and wf::within() give for a work. For a task it is that of
// `co_await`.
template <class T>
struct CoEndedOf {
  using type = WFEnded<T>;
};
template <>
struct CoEndedOf<WFEnd> {
  using type = WFEnded<void>;
};
template <class T>
struct CoEndedOf<WFEnded<T>> {
  using type = WFEnded<T>;
};
template <class BACK>
struct CoEndedOf<CoGranted<BACK>> {
  using type = CoGranted<BACK>;
};
template <class T>
using CoEnded = typename CoEndedOf<T>::type;
// Whether that is a WFEnded, which can take an exception and another end. Else it is a CoGranted.
template <class T>
inline constexpr bool kCoIsEnded = std::is_base_of_v<WFEnd, CoEnded<T>>;

template <class T>
CoEnded<T> co_ended(CoSlot<T> &slot) {
  if constexpr (std::is_same_v<CoEnded<T>, T>) {
    if (slot.value) return *std::move(slot.value);
  }
  CoEnded<T> ended{WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}};
  if constexpr (kCoIsEnded<T>) {
    ended.exception = slot.exception;
    if constexpr (std::is_same_v<WFEnd, T>) {
      if (slot.value) static_cast<WFEnd &>(ended) = *slot.value;
    } else if constexpr (!std::is_same_v<CoEnded<T>, T>) {
      if (slot.value) static_cast<WFEnd &>(ended) = WFEnd{WFT_STATE_SUCCESS, 0};
      if constexpr (!std::is_void_v<T>) {
        if (slot.value) ended.value.emplace(*std::move(slot.value));
      }
    }
  }
  return ended;
}

template <class... T>
WFCo<std::tuple<CoEnded<T>...>> co_all_ended(std::tuple<CoUnstarted<T>...> children) {
  std::tuple<CoSlot<T>...> slots;
  CoNewGroup group(co_no_limit());
  co_add(group, children, slots, CoPolicy::kEnded, std::index_sequence_for<T...>());
  static_cast<void>(co_await group.release());
  co_return std::apply(
      [](CoSlot<T> &...slot) { return std::tuple<CoEnded<T>...>(co_ended<T>(slot)...); }, slots);
}

}  // namespace workflow

// The first of several works to end: its index, and its result.
template <class... T>
struct WFFirst {
  size_t index;
  std::variant<T...> value;
};

namespace workflow {

template <class... T>
requires(kCoIsGranted<T> || ...) struct CoGiven<WFFirst<T...>> {
  using type = WFFirst<typename CoGiven<T>::type...>;
  static type give(WFFirst<T...> &&first) { return give_from<0>(first); }

 private:
  template <size_t I>
  static type give_from(WFFirst<T...> &first) {
    if constexpr (I + 1 < sizeof...(T)) {
      if (first.index != I) return give_from<I + 1>(first);
    }
    using Item = std::variant_alternative_t<I, std::variant<T...>>;
    return type{I, decltype(type::value)(std::in_place_index<I>,
                                         co_give<Item>(std::get<I>(std::move(first.value))))};
  }
};

template <class FIRST, size_t I, class... T>
FIRST co_first_from(std::tuple<CoSlot<T>...> &slots, size_t index) {
  if constexpr (I < sizeof...(T)) {
    if (index != I) return co_first_from<FIRST, I + 1>(slots, index);
    return FIRST{I, decltype(FIRST::value)(std::in_place_index<I>, co_result(std::get<I>(slots)))};
  } else {
    throw WFError(WFEnd{WFT_STATE_SYS_ERROR, ECANCELED});  // all were dropped
  }
}

template <class... T>
WFCo<WFFirst<CoStored<T>...>> co_any(std::tuple<CoUnstarted<T>...> children) {
  std::tuple<CoSlot<T>...> slots;
  CoNewGroup group(co_no_limit());
  co_add(group, children, slots, CoPolicy::kFirst, std::index_sequence_for<T...>());
  const auto ended = co_await group.release();
  co_return co_first_from<WFFirst<CoStored<T>...>, 0>(slots, ended.value->first);
}

// Whether wf::within() says of the work W, whose result is a T, that it has ended too late. What
// waits itself, and not in a coroutine, knows how it has ended.
template <class W, class T>
inline constexpr bool kCoMayBeLate = !std::is_same_v<CoEnded<T>, T> && !std::is_same_v<WFEnd, T>;
template <class R, class T>
inline constexpr bool kCoMayBeLate<WFCo<R>, T> = kCoIsEnded<T>;

template <class W, class T>
WFCo<CoEnded<T>> co_within(Duration limit, CoUnstarted<T> child) {
  CoSlot<T> slot;
  CoNewGroup group(limit);
  group->add(new CoChildBranch<T>(std::move(child), &slot, CoPolicy::kAll, 0));
  const auto ended = co_await group.release();
  co_rethrow(*ended.value);
  CoEnded<T> outcome = co_ended<T>(slot);
  if constexpr (kCoMayBeLate<W, T>) {
    const int reason = ended.value->reason;
    if (slot.value && reason != 0) {
      static_cast<WFEnd &>(outcome) = WFEnd{WFT_STATE_SYS_ERROR, reason};
    }
  }
  co_return outcome;
}

// Runs the body of a scope as a coroutine, even if it is a plain function.
template <class F, class RESULT>
struct CoBodyOf {
  using type = RESULT;
  static WFCo<RESULT> make(F &body, WFScope &scope) { co_return body(scope); }
};
template <class F, class T>
struct CoBodyOf<F, WFCo<T>> {
  using type = T;
  static WFCo<T> make(F &body, WFScope &scope) { return body(scope); }
};

// Calls the body when its branch begins.
template <class F, class T, class BODY>
class CoBodyBranch final : public CoBranch {
 public:
  CoBodyBranch(F *body, WFScope *scope, CoSlot<T> *slot)
      : body_(body), scope_(scope), slot_(slot) {}

 private:
  ~CoBodyBranch() override = default;

  CoFrame *make_frame() override {
    decltype(auto) co = BODY::make(*body_, *scope_);
    return frame_ = CoAccess::release(co);
  }
  void ended(CoFrame * /*frame*/, std::exception_ptr exception) noexcept override {
    if (exception) {
      group()->fail(std::move(exception));
    } else {
      slot_->fill(frame_);
    }
  }

  F *const body_;
  WFScope *const scope_;
  CoSlot<T> *const slot_;
  CoPromise<T> *frame_ = nullptr;
};

template <class F>
using CoBody = CoBodyOf<F, std::invoke_result_t<F &, WFScope &>>;

template <class F>
WFCo<typename CoBody<F>::type> co_scope(F body) {
  using T = typename CoBody<F>::type;
  CoSlot<T> slot;
  CoNewGroup group(co_no_limit());
  WFScope scope = group->scope();
  group->add(new CoBodyBranch<F, T, CoBody<F>>(&body, &scope, &slot));
  const auto ended = co_await group.release();
  co_rethrow(*ended.value);
  if constexpr (std::is_void_v<T>) {
    co_result(slot);
  } else {
    co_return co_result(slot);
  }
}

// The items of wf::each(). Each worker takes the next item when it has done the previous one.
template <class R, class F>
class CoItems {
 public:
  using Iterator = std::ranges::iterator_t<R>;
  using Reference = std::ranges::range_reference_t<R>;
  // The items of other ranges may be gone when the iterator moves on.
  static constexpr bool kRefers =
      std::is_lvalue_reference_v<Reference> && std::ranges::forward_range<R>;
  using Item = std::conditional_t<kRefers, std::remove_reference_t<Reference> *,
                                  std::remove_cvref_t<Reference>>;
  // Returns an item as the range would, but from the place where the worker keeps it.
  static constexpr bool kIsLvalue = std::is_lvalue_reference_v<Reference>;
  using Work = std::invoke_result_t<F &, std::conditional_t<kIsLvalue, Reference, Item &&>>;
  using Result = CoWorkResult<std::remove_cvref_t<Work>>;
  static_assert(!kCoIsGranted<Result>,
                "the function given to wf::each() must not return wf::hold(), wf::take() or "
                "wf::receive(queue): let it be a coroutine that waits for it, and has a "
                "WFReleaseGuard or a WFPostResource");

  CoItems(R &range, F &call)
      : function(call), next_(std::ranges::begin(range)), end_(std::ranges::end(range)) {}

  // Returns the next item, with the place for its result, or nothing if there is none. The range is
  // the user's code, and runs under mutex_: its iterator belongs to one worker at a time. No other
  // lock is taken under mutex_, which only the workers of this call share.
  std::optional<Item> take(CoSlot<Result> **slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (next_ == end_) return std::nullopt;
    std::optional<Item> item;
    if constexpr (kRefers) {
      item.emplace(&*next_);
    } else {
      item.emplace(*next_);
    }
    ++next_;
    if constexpr (!std::is_void_v<Result>) *slot = &results.emplace_back();
    return item;
  }
  Work work(Item &item) {
    if constexpr (kRefers) {
      return std::invoke(function, *item);
    } else if constexpr (kIsLvalue) {
      return std::invoke(function, static_cast<Reference>(item));
    } else {
      return std::invoke(function, std::move(item));
    }
  }

  F &function;
  std::deque<CoSlot<Result>> results;  // guarded by mutex_ until the workers have ended

 private:
  std::mutex mutex_;
  Iterator next_;
  const std::ranges::sentinel_t<R> end_;
};

template <class ITEMS>
WFCo<> co_each_worker(ITEMS &items, CoGroup *group) {
  using Result = typename ITEMS::Result;
  CoSlot<Result> *slot = nullptr;
  while (!group->has_failed()) {
    auto item = items.take(&slot);
    if (!item) break;
    if constexpr (std::is_void_v<Result>) {
      co_await items.work(*item);
    } else {
      slot->value.emplace(co_await items.work(*item));
    }
  }
}

template <class R, class F>
using CoEachResult = std::conditional_t<std::is_void_v<typename CoItems<R, F>::Result>, void,
                                        std::vector<CoStored<typename CoItems<R, F>::Result>>>;

template <class R, class F>
WFCo<CoEachResult<R, F>> co_each(R range, size_t at_most, F function) {
  using Result = typename CoItems<R, F>::Result;
  CoItems<R, F> items(range, function);
  size_t workers = at_most == 0 ? 1 : at_most;
  if constexpr (std::ranges::forward_range<R>) {
    size_t n = 0;  // the range may be endless
    for (auto next = std::ranges::begin(range); n < workers && next != std::ranges::end(range);
         ++next) {
      n++;
    }
    workers = n;
  } else {
    constexpr size_t kMaxUncounted = 64;
    workers = workers < kMaxUncounted ? workers : kMaxUncounted;
  }
  std::deque<CoSlot<void>> ends;
  CoNewGroup group(co_no_limit());
  for (size_t i = 0; i < workers; i++) {
    auto worker = co_each_worker(items, group.operator->());
    group->add(new CoChildBranch<void>(co_own(worker), &ends.emplace_back(), CoPolicy::kAll, i));
  }
  const auto ended = co_await group.release();
  co_rethrow(*ended.value);
  for (CoSlot<void> &end : ends) {
    co_result(end);
  }
  if constexpr (!std::is_void_v<Result>) {
    std::vector<CoStored<Result>> results;
    results.reserve(items.results.size());
    for (CoSlot<Result> &slot : items.results) {
      results.push_back(co_result(slot));
    }
    co_return results;
  }
}

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "util/UniqueFd.h"
#include "workflow/WFCoroutine.h"

// Every kind of wait in which a coroutine may be suspended, as a table. For each kind it says how
// the wait begins, how others bring what it waits for, and how it ends then. Simulations, races and
// ordinary tests take the kinds from here, end the waits in every way, and compare the outcomes
// with may_end().

namespace test_support {

class WaitPlace;

struct WaitKind {
  const char* name;
  // Waits for what `bring` brings, and returns how the wait ended. If the kind is a structure, that
  // is how the wait inside it ended. Gives back what it has got.
  WFCo<WFEnd> (*wait)(WaitPlace& place);
  // Brings what the wait waits for. May be called at any time, on any thread and several times. If
  // nobody waits yet it may have no effect, so it is to be called again. If this is null, the wait
  // ends by itself at once, or, if its scope ended before the wait began, with the error of the
  // scope.
  void (*bring)(WaitPlace& place);
  // How the wait ends then.
  WFEnd brought = {WFT_STATE_SUCCESS, 0};
  // Called before the coroutine begins: takes away what will be brought. May be null.
  void (*prepare)(WaitPlace& place) = nullptr;
  // Called after the end and a call of `bring`: whether what was brought is where it should be. May
  // be null.
  WFCo<bool> (*is_back)(WaitPlace& place) = nullptr;
};

// The kinds that need no socket, so they also work in a simulation, and all kinds of clients.
std::span<const WaitKind> local_wait_kinds();
std::span<const WaitKind> network_wait_kinds();

// What a test has done to end a coroutine's wait. Each flag is set before the attempt is made.
struct WaitWays {
  std::atomic<bool> brought{false};
  std::atomic<bool> canceled{false};   // its scope, with ECANCELED
  std::atomic<bool> timed_out{false};  // its scope has got a deadline
  std::atomic<bool> stopped{false};    // the library
  std::atomic<bool> dropped{false};    // its series was cancelled
};

// What one coroutine waits for, and a count of its frames. It outlives the coroutine. Thread-safe,
// except for the functions marked "After the end", which may be called only when the coroutine is
// gone.
class WaitPlace {
 public:
  // `name` becomes the name of everything here. No other object may have it at the same time. Must
  // not be called in a callback.
  WaitPlace(const WaitKind& kind, std::string name);
  ~WaitPlace();
  WaitPlace(const WaitPlace&) = delete;
  WaitPlace& operator=(const WaitPlace&) = delete;

  const WaitKind& kind() const { return kind_; }
  const std::string& name() const { return name_; }

  // The coroutine: it waits, and if its scope ended or the library stopped meanwhile, once more.
  WFCo<> stay();

  // A coroutine that loses in wf::any(). Returns whether its frames had gone when wf::any()
  // returned. After that `ended` says how its wait has ended.
  WFCo<bool> lose();

  // The ways to end the wait. Each may be called at any time.
  void bring();
  void cancel(const WFScope& scope);
  void set_deadline(const WFScope& scope, const WFTimerDue& due);
  void drop();  // cancels its series
  void note_stop() { ways_.stopped = true; }

  // After the end. Returns what is wrong, or an empty text: the outcome does not agree with the
  // calls above, or a frame is left or was destroyed twice.
  std::string problem() const;
  // After the end and a call of bring(), unless the library has stopped.
  WFCo<bool> nothing_is_lost();

  // How the wait ended, or nothing if the coroutine was dropped.
  std::optional<WFEnd> ended;
  // How the next wait in the same scope ended, after one that ended early.
  std::optional<WFEnd> again;

  // For the kinds ------------------------------------------------------------------------------

  // Each frame has one as a local variable.
  class Frame {
   public:
    explicit Frame(WaitPlace& place) : place_(place) { place_.frames_begun_++; }
    ~Frame() {
      place_.frames_gone_++;
      if (!alive_.exchange(false)) place_.frames_gone_ += 1000;  // destroyed twice
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    WaitPlace& place_;
    std::atomic<bool> alive_{true};
  };

  // What is handed to waits: a message, or a resource. The pool has it when the place is ready, and
  // somebody else has taken it.
  void* thing() { return &thing_; }
  WFResourcePool& pool() { return pool_; }
  WFMessageQueue& queue() { return queue_; }
  // Calls it if this is the first call.
  void once(const std::function<void()>& act);
  void keep_handle(const WFTimerHandle& handle);
  WFTimerHandle handle();
  void keep_selector(WFSelectorTask* selector);
  // Returns null, except for one call.
  WFSelectorTask* take_selector();
  uint16_t port();
  // Answers the request that has come, if one has.
  void answer();
  // Whether there is a connection that answer() has not taken.
  bool is_asked();
  // Called at the end of a wait for that thing. If the wait has got something else, problem() says
  // so.
  WFEnd got(const WFEnded<void*>& end);
  // The message of the queue has been received.
  void note_receipt() { received_ = true; }
  bool is_received() const { return received_; }

 private:
  class OwnSeries;

  bool may_end(const WFEnd& end) const;

  const WaitKind& kind_;
  const std::string name_;
  int thing_ = 0;
  void* things_[1] = {&thing_};
  WFResourcePool pool_{things_, 1};
  WFMessageQueue queue_;
  WaitWays ways_;
  std::atomic<int> frames_begun_{0};
  std::atomic<int> frames_gone_{0};
  std::atomic<bool> done_once_{false};
  std::atomic<bool> stranger_{false};
  std::atomic<bool> received_{false};
  std::atomic<WFSelectorTask*> selector_{nullptr};
  // In a simulation no virtual thread is switched while this is held: nothing inside calls the
  // library.
  std::mutex mutex_;
  SeriesWork* series_ = nullptr;
  WFTimerHandle handle_;
  workflow::UniqueFd listener_;
  std::vector<std::pair<workflow::UniqueFd, std::string>> peers_;  // and what they have sent
};

}  // namespace test_support

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernel/ComputePool.h"
#include "kernel/FileIo.h"
#include "kernel/HandlerPool.h"
#include "kernel/Leadership.h"
#include "kernel/Poller.h"
#include "util/Clock.h"
#include "util/Mutex.h"

namespace workflow {

// Something that brings work in and must be closed before the rest stops: a server.
class Intake {
 public:
  // The runtime begins to stop: stops bringing work in. Returns soon.
  virtual void close_intake() = 0;

  // Returns when nothing runs that it has brought in, but what waits. For those that run something
  // themselves; the result changes when they do (see WorkerPool::wait_quiet).
  virtual uint64_t wait_quiet() { return 0; }

  // The runtime has stopped, its pollers have ended: frees what they would have freed.
  virtual void runtime_stopped() = 0;

 protected:
  ~Intake() = default;
};

class Runtime;

// Something that an upper layer keeps once per runtime. Lives as long as the runtime.
class RuntimePart {
 public:
  virtual ~RuntimePart() = default;

  // The runtime stops, and nothing runs any more: what waits for something that only a running task
  // could bring, and what will come to wait, shall end. Once, after waits_ended() became true.
  virtual void end_waits(Runtime& /*runtime*/) {}
};

// The threads of the library and what they work on: pollers, handlers, computing.
//
// One serves the process. It starts when it is first asked for and is stopped, in order, when the
// process exits: intake, timers, files, computing, handlers, pollers. Every callback runs before
// the process is gone. A simulation has one of its own.
//
// fork(2) copies no threads: a child gets a runtime of its own when it first asks for one, and the
// parent's is left behind there, untouched (its pollers share their epoll sets with the parent).
class Runtime {
 public:
  struct Options {
    int poller_threads = 0;  // 0: as many as there are processors, at most 4
    int handler_threads = 20;
    int compute_threads = 0;  // 0: as many as there are processors
    FileIo::Options files = {};
    Clock* clock = nullptr;  // null: the system's
  };

  // The runtime of the calling thread's world: its simulation's, or the process's. Starts the
  // latter if needed; when the system refuses threads or descriptors the process ends with a
  // message, as no task could ever complete.
  static Runtime& current();

  // What the process's runtime will be started with. No effect once it has started.
  static void configure(const Options& options);

  // Has the process's runtime measure time by `clock`, which lives for ever, whatever configure()
  // says. False when it has started already.
  static bool install_clock(Clock& clock);

  // The clock of current(), which this does not start.
  static Clock& current_clock();

  explicit Runtime(const Options& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The threads that it starts belong to it. False with errno when threads or descriptors have run
  // out.
  bool start();

  // Every timer ends as aborted, every callback runs, then all threads end. Tasks started later
  // complete as aborted, on the thread that starts them. Called by a callback (one
  // that ends the process), it does not wait for that one's thread, which must never go back to its
  // work, nor the runtime be destroyed.
  void stop();

  Clock& clock() { return clock_; }
  HandlerPool& handlers() { return handlers_; }
  ComputePool& compute() { return compute_; }
  FileIo& files() { return files_; }
  size_t poller_count() const { return pollers_.size(); }
  Poller& poller(size_t i) { return *pollers_[i]; }
  // The poller for work that this thread starts: always the same one, so that threads seldom meet.
  Poller& own_poller();

  // The T of this runtime, a RuntimePart, made when first asked for. Any thread.
  template <class T>
  T& part() {
    static const size_t slot = claim_part_slot();
    RuntimePart* part = parts_[slot].load(std::memory_order_acquire);
    return static_cast<T&>(part ? *part : add_part(slot, std::make_unique<T>()));
  }

  // Whether this process is a child of the one that has started it: then nothing of it may be
  // waited for.
  bool left_behind() const { return forks_ != forks_so_far(); }

  // True once stop() has begun.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  // True once nothing may begin to wait. Ordered with the making of parts: a part that stop() has
  // not seen sees true.
  bool waits_ended() const { return waits_ended_.load(std::memory_order_seq_cst); }

  // False when the runtime is stopping already.
  bool add_intake(Intake* intake);
  // Once it has returned the intake is not called, nor in a call.
  void remove_intake(Intake* intake);

 private:
  static constexpr size_t kMaxParts = 16;  // one per type that part() is used with

  static Runtime& process_runtime();
  // How many processes lie between the first and this one.
  static int forks_so_far();
  bool start_threads();
  // Returns when nothing runs but what waits, and nothing is left to run.
  void wait_quiet();
  // Returns when each has been quiet at some moment since the call. Only if the result is not the
  // one before, something ran meanwhile.
  uint64_t look_for_quiet();
  void end_waits();
  void call_intakes(const std::function<void(Intake&)>& call);
  // Whether pollers may run what they finish: where time is real, and nobody wants each run to be
  // the same.
  bool runs_to_completion() const;
  static size_t claim_part_slot();
  // Keeps `part`, unless another thread was faster; what is kept now.
  RuntimePart& add_part(size_t slot, std::unique_ptr<RuntimePart> part);

  const int forks_ = forks_so_far();
  Clock& clock_;
  HandlerPool handlers_;
  LeaderWatch watch_;
  ComputePool compute_;
  FileIo files_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::array<std::atomic<RuntimePart*>, kMaxParts> parts_{};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> waits_ended_{false};
  std::atomic<uint32_t> next_slot_{0};
  Mutex intakes_mutex_;
  CondVar call_ended_;
  std::vector<Intake*> intakes_ WF_GUARDED_BY(intakes_mutex_);
  Intake* called_ WF_GUARDED_BY(intakes_mutex_) = nullptr;
  bool intakes_closed_ WF_GUARDED_BY(intakes_mutex_) = false;
};

}  // namespace workflow

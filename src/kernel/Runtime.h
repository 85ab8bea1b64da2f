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
#include "kernel/OriginProcess.h"
#include "kernel/Poller.h"
#include "kernel/StallWatch.h"
#include "util/Clock.h"
#include "util/Mutex.h"

namespace workflow {

// Something that brings work in and must be closed before the rest stops, such as a server. Of
// several services, the one that was added last is called first, because it may use the others.
class Service {
 public:
  // Called when the runtime begins to stop. The service brings in no more work. Returns soon.
  virtual void refuse_new_work() = 0;

  // Called once when all tasks that waited have ended. Waits for what neither the pollers nor the
  // handler threads end: sessions, or threads of the service's own. Returns false if the service
  // has ended here and may be gone: then it is not called again.
  virtual bool finish_work() { return true; }

  // Called when the runtime has stopped and its pollers have ended. Frees what they would have
  // freed.
  virtual void runtime_stopped() = 0;

 protected:
  ~Service() = default;
};

class Runtime;

// An object of which an upper layer keeps one per runtime. Lives as long as the runtime.
class RuntimePart {
 public:
  virtual ~RuntimePart() = default;

  // Called once, when the runtime stops, after waits_ended() became true. Callbacks and functions
  // may still run. Ends everything that waits in this part, such as requests for addresses, or
  // tasks that wait for another task. What begins to wait later sees waits_ended(), and ends at
  // once.
  virtual void end_waits(Runtime& /*runtime*/) {}
};

// The threads of the library with their queues: pollers, handler threads, computing threads.
//
// One runtime serves the process. It starts on first use. When the process exits it is stopped in
// this order: new work is refused; timers and everything else that waits end as aborted; file
// operations that have begun, clients and users' executors end; then computing, handler threads and
// pollers end. Every callback runs before the process ends. A simulation has a runtime of its own.
//
// fork(2) copies no threads. A child gets a runtime of its own on first use. The copy of the
// parent's runtime is left untouched there, because its pollers share their epoll sets with the
// parent.
class Runtime {
 public:
  struct Options {
    int poller_threads = 0;  // 0: as many as there are processors, at most 4
    int handler_threads = 20;
    int compute_threads = 0;  // 0: as many as there are processors
    FileIo::Options files = {};
    Clock* clock = nullptr;  // null: the system's
  };

  // The runtime of the calling thread: that of its simulation, or else that of the process. Starts
  // the latter if needed. If the system then refuses threads or descriptors the process aborts with
  // a message, because no task could ever complete.
  static Runtime& current();

  // Sets the options with which the process's runtime will start, or start anew in a child of
  // fork(2). No effect on one that has started. Not to be called while one starts.
  static void configure(const Options& options);

  // Makes the process's runtime use `clock`, whatever configure() says. `clock` must never be
  // destroyed. Returns false if the runtime has started or a clock was installed already.
  static bool install_clock(Clock& clock);

  // The clock of current() or, before the start, the installed one or the system's. Does not start
  // the runtime.
  static Clock& current_clock();

  explicit Runtime(const Options& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Starts the threads. For them, current() is this runtime. Returns false with errno if threads or
  // descriptors have run out.
  bool start();

  // Everything that waits ends as aborted, functions and file operations that run are waited for,
  // every callback runs, then all threads end. Tasks started later complete as aborted, on the
  // thread that starts them. A callback that ends the process may call this: it then does not wait
  // for the thread of that callback. That thread must never return to its pool or poller, and the
  // runtime must not be destroyed.
  void stop();

  Clock& clock() { return clock_; }
  HandlerPool& handlers() { return handlers_; }
  ComputePool& compute() { return compute_; }
  FileIo& files() { return files_; }
  StallWatch& stall_watch() { return watch_; }
  size_t poller_count() const { return pollers_.size(); }
  Poller& poller(size_t i) { return *pollers_[i]; }
  // The poller for work that the calling thread starts. It is always the same one, so that threads
  // seldom contend.
  Poller& own_poller();

  // The runtime's object of type T, a RuntimePart, created on first use. Any thread.
  template <class T>
  T& part() {
    static const size_t slot = claim_part_slot();
    RuntimePart* part = parts_[slot].load();
    return static_cast<T&>(part ? *part : add_part(slot, std::make_unique<T>()));
  }

  // Whether the runtime was created before a fork(2) and this process is the child. Then nothing
  // may wait for the runtime, because it has no threads here.
  bool belongs_to_parent_process() const { return origin_.is_parent(); }

  // True once stop() has made all services refuse new work.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  // True once nothing may begin to wait. A part that is created too late for stop() to find it sees
  // true.
  bool waits_ended() const { return waits_ended_.load(std::memory_order_seq_cst); }

  // False when the runtime is stopping already.
  bool add_service(Service* service);
  // When this has returned, no call to the service is in progress or to come. Not to be called by
  // the service inside such a call.
  void remove_service(Service* service);

 private:
  static constexpr size_t kMaxParts = 16;  // one per type that part() is used with

  static Runtime& process_runtime();
  bool start_threads();
  void end_waits();
  // Calls each service that is registered, the last one first. Forgets those for which `call`
  // returns false.
  void call_services(const std::function<bool(Service&)>& call);
  // Whether pollers may run what they finish themselves: only with the system's clock, and outside
  // the scheduler that makes runs repeatable.
  bool runs_to_completion() const;
  static size_t claim_part_slot();
  // Keeps `part`, unless another thread has stored one first. Returns the part that is kept.
  RuntimePart& add_part(size_t slot, std::unique_ptr<RuntimePart> part);

  const OriginProcess origin_;
  Clock& clock_;
  HandlerPool handlers_;
  StallWatch watch_;
  ComputePool compute_;
  FileIo files_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  // The exchange that adds a part publishes it to the load in part(). All accesses are seq_cst, as
  // are those of waits_ended_. A thread that adds or finds a part asks waits_ended() afterwards,
  // and end_waits() sets waits_ended_ and then looks for the part. In the single order of these
  // operations one of the two reads comes after both writes. If end_waits() finds the part, the
  // part's own lock decides.
  std::array<std::atomic<RuntimePart*>, kMaxParts> parts_{};
  // Release and acquire: whoever reads true comes after the calls of refuse_new_work().
  std::atomic<bool> stopping_{false};
  std::atomic<bool> waits_ended_{false};  // orders: see parts_
  std::atomic<uint32_t> next_slot_{0};    // relaxed: it only spreads the threads
  Mutex services_mutex_;
  CondVar call_ended_;
  std::vector<Service*> services_ WF_GUARDED_BY(services_mutex_);
  Service* called_ WF_GUARDED_BY(services_mutex_) = nullptr;
  bool services_closed_ WF_GUARDED_BY(services_mutex_) = false;
};

}  // namespace workflow

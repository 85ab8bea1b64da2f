#include "kernel/Runtime.h"

#include <openssl/crypto.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/BlockingScope.h"
#include "kernel/ThreadContext.h"
#include "util/Processors.h"

namespace workflow {

namespace {

Runtime::Options& process_options() {
  static Runtime::Options options;
  return options;
}

// The clock installed for the process's runtime; once that has started, its clock. The first of
// install_clock() and the start to exchange it decides. It publishes the clock, for which release
// and acquire would do: nothing relates it to another word, and seq_cst is only the default.
std::atomic<Clock*>& process_clock() {
  static constinit std::atomic<Clock*> clock{nullptr};
  return clock;
}

int compute_threads_of(const Runtime::Options& options) {
  return options.compute_threads > 0 ? options.compute_threads : usable_processors();
}

// More pollers than processors would only delay each other.
int poller_threads_of(const Runtime::Options& options) {
  constexpr int kMax = 4;
  return options.poller_threads > 0 ? options.poller_threads : std::min(usable_processors(), kMax);
}

// Stopped at exit but never destroyed: static objects that outlive it may still start tasks,
// which then complete as aborted. stop() has ended its threads and their work.
class ProcessRuntime {
 public:
  ProcessRuntime() {
    // Called before the constructor ends, so that at exit OpenSSL frees its data after the
    // library's threads, which use it, have been stopped. Without an option the call does nothing;
    // this option is cheap.
    ::OPENSSL_init_crypto(OPENSSL_INIT_ASYNC, nullptr);
    process_clock().compare_exchange_strong(clock_, &system_clock());
    ::pthread_atfork(nullptr, nullptr, [] { forget_parent(); });
    Runtime* const runtime = make(storage_);
    process_clock().store(&runtime->clock());
    runtime_.store(runtime, std::memory_order_release);
  }
  ~ProcessRuntime() {
    if (Runtime* runtime = runtime_.load(std::memory_order_acquire)) {
      runtime->stop();
    }
  }
  Runtime& get() {
    Runtime* runtime = runtime_.load(std::memory_order_acquire);
    return runtime ? *runtime : make_anew();
  }

 private:
  Runtime* make(void* storage) {
    Runtime::Options options = process_options();
    options.clock = clock_ ? clock_ : options.clock;
    auto* const runtime = new (storage) Runtime(options);
    if (!runtime->start()) {
      std::fprintf(stderr, "workflow: cannot start the runtime: %s\n", std::strerror(errno));
      std::abort();
    }
    return runtime;
  }

  // In a child of fork(2).
  Runtime& make_anew() {
    MutexLock lock(*making_);
    if (!runtime_.load(std::memory_order_relaxed)) {
      runtime_.store(make(::operator new (sizeof(Runtime), std::align_val_t{alignof(Runtime)})),
                     std::memory_order_release);
    }
    return *runtime_.load(std::memory_order_relaxed);
  }

  // The only thread of the child belongs to no pool, because the pools have stayed with the parent.
  static void forget_parent() {
    OriginProcess::forked();
    ThreadContext::current() = ThreadContext();
    making_ = new Mutex;
    runtime_.store(nullptr, std::memory_order_release);
  }

  alignas(Runtime) unsigned char storage_[sizeof(Runtime)];
  Clock* clock_ = nullptr;  // if one was installed
  // A store releases and the loads without making_ acquire: this publishes the runtime.
  static inline constinit std::atomic<Runtime*> runtime_{nullptr};
  static inline Mutex* making_ = nullptr;  // in a child
};

}  // namespace

Runtime& Runtime::current() {
  Runtime* own = ThreadContext::current().runtime;
  return own ? *own : process_runtime();
}

Runtime& Runtime::process_runtime() {
  // Its destructor is the stop at exit.
  static ProcessRuntime runtime;  // NOLINT(clang-diagnostic-exit-time-destructors)
  return runtime.get();
}

Clock& Runtime::current_clock() {
  Runtime* const own = ThreadContext::current().runtime;
  Clock* const clock = own ? &own->clock() : process_clock().load();
  return clock ? *clock : system_clock();
}

bool Runtime::install_clock(Clock& clock) {
  Clock* none = nullptr;
  return process_clock().compare_exchange_strong(none, &clock);
}

void Runtime::configure(const Options& options) {
  process_options() = options;
}

Runtime::Runtime(const Options& options)
    : clock_(options.clock ? *options.clock : system_clock()),
      handlers_(std::max(options.handler_threads, 1)),
      compute_(compute_threads_of(options)),
      files_(handlers_, options.files) {
  StallWatch* const watch = runs_to_completion() ? &watch_ : nullptr;
  // With one handler thread callbacks run one after the other.
  if (watch && options.handler_threads > 1) {
    watch_.exposed().enable();
  }
  for (int i = 0; i < poller_threads_of(options); i++) {
    pollers_.push_back(std::make_unique<Poller>(clock_, handlers_, watch));
  }
}

Runtime::~Runtime() {
  for (const auto& part : parts_) {
    delete part.load(std::memory_order_acquire);
  }
}

size_t Runtime::claim_part_slot() {
  // Relaxed: the numbers need only be different.
  static std::atomic<size_t> claimed{0};
  const size_t slot = claimed.fetch_add(1, std::memory_order_relaxed);
  if (slot >= kMaxParts) {
    std::fprintf(stderr, "workflow: Runtime::kMaxParts is too small\n");
    std::abort();
  }
  return slot;
}

RuntimePart& Runtime::add_part(size_t slot, std::unique_ptr<RuntimePart> part) {
  RuntimePart* kept = nullptr;
  if (parts_[slot].compare_exchange_strong(kept, part.get(), std::memory_order_seq_cst)) {
    return *part.release();
  }
  return *kept;
}

bool Runtime::start() {
  Runtime*& current = ThreadContext::current().runtime;
  Runtime* const outer = std::exchange(current, this);
  const bool started = start_threads();
  current = outer;
  return started;
}

bool Runtime::start_threads() {
  if (!handlers_.start() || !compute_.start()) {
    errno = EAGAIN;
    return false;
  }
  for (const auto& poller : pollers_) {
    if (!poller->start()) return false;
  }
  if (runs_to_completion() && !watch_.start()) {
    errno = EAGAIN;
    return false;
  }
  return true;
}

bool Runtime::runs_to_completion() const {
  return clock_.is_system_clock() && !VirtualScheduler::current();
}

void Runtime::stop() {
  if (LeaderThreads* threads = ThreadContext::current().running_for) {
    threads->replace_leader();  // another thread must end the timers of this poller
  }
  // If the caller is a worker of a pool that is ended elsewhere, that end must not wait for it.
  WorkerPool* const own_pool = ThreadContext::current().pool;
  if (own_pool && own_pool != &handlers_ && own_pool != &compute_) {
    own_pool->abandon_caller();
  }
  const bool on_compute_thread = own_pool == &compute_;
  call_services([](Service& service) {
    service.refuse_new_work();
    return true;
  });
  stopping_.store(true, std::memory_order_release);
  files_.refuse();
  // All pollers refuse timers before any of them ends its own: a timer that an aborted timer's
  // callback starts on another poller must not expire.
  for (const auto& poller : pollers_) {
    poller->timers().refuse();
  }
  for (const auto& poller : pollers_) {
    poller->timers().stop();
  }
  end_waits();
  // Otherwise the handler threads might find nothing to do and end before the timers are posted.
  for (const auto& poller : pollers_) {
    poller->timers().wait_until_ended();
  }
  {
    const BlockingScope blocking;  // other threads run what is queued for this one
    // What runs may need the pollers and handler threads to end.
    for (const auto& poller : pollers_) {
      poller->wait_for_callbacks();
    }
    files_.stop();
    call_services([](Service& service) { return service.finish_work(); });
    if (!on_compute_thread) {
      compute_.stop();
    }
  }
  if (on_compute_thread) {
    compute_.stop();  // announces the wait of a worker of its own pool itself
  }
  handlers_.stop();
  for (const auto& poller : pollers_) {
    poller->stop();
  }
  if (runs_to_completion()) {
    watch_.stop();
  }
  call_services([](Service& service) {
    service.runtime_stopped();
    return true;
  });
}

void Runtime::end_waits() {
  waits_ended_.store(true, std::memory_order_seq_cst);
  // Tasks that end here are removed from names of this runtime, so it must be current, whichever
  // runtime the calling thread belongs to.
  Runtime*& current = ThreadContext::current().runtime;
  Runtime* const outer = std::exchange(current, this);
  for (const auto& slot : parts_) {
    if (RuntimePart* part = slot.load(std::memory_order_seq_cst)) {
      part->end_waits(*this);
    }
  }
  current = outer;
}

void Runtime::call_services(const std::function<bool(Service&)>& call) {
  std::vector<Service*> services;
  {
    MutexLock lock(services_mutex_);
    services.assign(services_.rbegin(), services_.rend());
    services_closed_ = true;
  }
  for (Service* service : services) {
    {
      MutexLock lock(services_mutex_);
      if (std::find(services_.begin(), services_.end(), service) == services_.end()) continue;
      called_ = service;
    }
    const bool stays = call(*service);
    MutexLock lock(services_mutex_);
    called_ = nullptr;
    if (!stays) {
      std::erase(services_, service);  // only the address is used: the service may be gone
    }
    call_ended_.notify_all();
  }
}

Poller& Runtime::own_poller() {
  ThreadContext& context = ThreadContext::current();
  if (context.slot == 0) {
    context.slot = next_slot_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  return *pollers_[context.slot % pollers_.size()];
}

bool Runtime::add_service(Service* service) {
  MutexLock lock(services_mutex_);
  if (services_closed_) return false;
  services_.push_back(service);
  return true;
}

void Runtime::remove_service(Service* service) {
  MutexLock lock(services_mutex_);
  std::erase(services_, service);
  while (called_ == service) {
    call_ended_.wait(services_mutex_);
  }
}

}  // namespace workflow

#include "store/StoreOpener.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "kernel/Runtime.h"
#include "store/StoreEngine.h"
#include "store/StoreTimes.h"
#include "util/Clock.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

constexpr int64_t kMinLeaseNs = 1'000'000'000;
constexpr int64_t kMaxLeaseNs = 86'400 * kMinLeaseNs;
constexpr size_t kMaxRemembered = 1'000'000;
constexpr size_t kMaxOwner = 255;

std::string default_owner() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) {
    host[0] = '\0';
  }
  return std::string(host.data()) + "/" + std::to_string(::getpid());
}

uint64_t new_session() {
  // Relaxed: it publishes nothing. Each store only has to get another number.
  static std::atomic<uint64_t> simulated{0};
  if (VirtualScheduler::current()) {
    // Repeatable, and different from that of every other store of the simulation.
    return simulated.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  uint64_t session = 0;
  while (session == 0) {
    if (::getrandom(&session, sizeof session, 0) != sizeof session) {
      session = static_cast<uint64_t>(system_clock().now_ns()) ^ static_cast<uint64_t>(::getpid())
                                                                     << 40;
    }
  }
  // SQLite and JSON know signed numbers only.
  return session >> 1 | 1;
}

// Leads the hints of a backend to its engine, which is made later and may be gone earlier.
struct HintTarget {
  Mutex mutex;
  std::weak_ptr<StoreEngine> engine WF_GUARDED_BY(mutex);

  std::shared_ptr<StoreEngine> get() {
    MutexLock lock(mutex);
    return engine.lock();
  }
};

}  // namespace

StoreFailure StoreOpener::check(const WFStoreOptions& options) {
  const int64_t lease_ns = options.lease.ns();
  if (lease_ns < kMinLeaseNs || lease_ns > kMaxLeaseNs) {
    return {EINVAL, "WFStoreOptions::lease is not between one second and one day", false};
  }
  if (options.remembered > kMaxRemembered) {
    return {EINVAL, "WFStoreOptions::remembered is above one million", false};
  }
  if (options.catch_up_rate == 0) return {EINVAL, "WFStoreOptions::catch_up_rate is 0", false};
  if (options.max_queued == 0) return {EINVAL, "WFStoreOptions::max_queued is 0", false};
  if (options.owner.size() > kMaxOwner) {
    return {EMSGSIZE, "WFStoreOptions::owner has more than 255 bytes", false};
  }
  return {};
}

WFTimerStore* StoreOpener::open(const WFStoreOptions& options, const MakeBackend& make_backend,
                                StoreFailure* failure) {
  *failure = check(options);
  if (failure->error != 0) return nullptr;
  WFStoreOptions used = options;
  if (used.owner.empty()) {
    used.owner = default_owner();
  }
  const auto target = std::make_shared<HintTarget>();
  StoreBackendOptions backend_options;
  backend_options.create = used.create;
  backend_options.remembered = used.remembered;
  backend_options.clock = &Runtime::current().clock();
  backend_options.session = new_session();
  const auto times = std::make_shared<StoreTimes>();
  backend_options.times = times;
  backend_options.changed = [target] {
    if (const std::shared_ptr<StoreEngine> engine = target->get()) {
      engine->changed();
    }
  };
  std::unique_ptr<StoreBackend> backend = make_backend(backend_options, failure);
  if (!backend) return nullptr;
  auto engine =
      std::make_shared<StoreEngine>(std::move(backend), times, used, backend_options.session);
  {
    MutexLock lock(target->mutex);
    target->engine = engine;
  }
  const int refusal = engine->start();
  if (refusal != 0) {
    *failure = {refusal, refusal == ESHUTDOWN ? "the library stops" : "no thread is to be had",
                false};
    return nullptr;
  }
  try {
    return new WFTimerStore(engine);
  } catch (const std::bad_alloc&) {
    engine->close(0);
    throw;
  }
}

}  // namespace workflow

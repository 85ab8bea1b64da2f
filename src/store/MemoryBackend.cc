#include "store/MemoryBackend.h"

#include <cerrno>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernel/Runtime.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

int64_t wall_us(Clock& clock) {
  return clock.now_ns_on(ClockId::kWall) / 1000;
}

// The stores in memory of a runtime, so that each simulation has its own. Thread-safe.
class MemoryStores final : public RuntimePart {
 public:
  // Returns null if there is none of that name and `create` is false.
  std::shared_ptr<MemoryStore> open(const std::string& name, bool create, Clock& clock) {
    MutexLock lock(mutex_);
    std::erase_if(stores_, [](const auto& entry) { return entry.second.expired(); });
    const auto found = stores_.find(name);
    std::shared_ptr<MemoryStore> store = found != stores_.end() ? found->second.lock() : nullptr;
    if (store == nullptr && create) {
      store = std::make_shared<MemoryStore>(wall_us(clock));
      stores_[name] = store;
    }
    return store;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<MemoryStore>> stores_ WF_GUARDED_BY(mutex_);
};

void carry_out(StoreRequest& request, MemoryTimers& timers, MemoryAnswers& answers,
               size_t remembered) {
  if (answers.repeat(request)) return;
  std::visit(
      [&timers, &answers, &request, remembered](auto& what) {
        using What = std::remove_reference_t<decltype(what)>;
        if constexpr (std::is_same_v<What, AskRequest>) {
          answers.ask(what, request.failure, remembered);
          what.result.receipt = {WFStoreReceipt::kMemory, 0};
        } else if constexpr (std::is_same_v<What, ScheduleRequest>) {
          timers.carry_out(what, request.failure);
        } else {
          timers.carry_out(what);
        }
      },
      request.what);
  timers.trim(remembered);
  answers.remember(request, remembered);
}

}  // namespace

void MemoryStore::join(Member* member) {
  MutexLock lock(mutex_);
  members_.push_back(member);
}

void MemoryStore::leave(Member* member) {
  MutexLock lock(mutex_);
  std::erase(members_, member);
  while (member->calls > 0) {
    told_.wait(mutex_);
  }
}

void MemoryStore::execute(std::span<StoreRequest* const> requests, Member* member, Clock& clock,
                          size_t remembered) {
  MemoryTimers::Change change;
  int64_t now_us = 0;
  {
    MutexLock lock(mutex_);
    now_us = wall_us(clock);
    timers_.set_now(now_us);
    for (StoreRequest* request : requests) {
      request->failure = StoreFailure();
      carry_out(*request, timers_, answers_, remembered);
    }
    change = timers_.take_change();
  }
  // Nobody looks by himself in a simulation.
  const bool soon = change.earliest_us <= saturating_add(now_us, kSoonUs) ||
                    (VirtualScheduler::current() && change.earliest_us != kNeverUs);
  if (change.marked || soon) {
    tell_others(member);
  }
}

void MemoryStore::tell_others(const Member* member) {
  std::vector<Member*> others;
  {
    MutexLock lock(mutex_);
    for (Member* other : members_) {
      if (other != member && other->changed) {
        ++other->calls;
        others.push_back(other);
      }
    }
  }
  for (Member* other : others) {
    other->changed();
  }
  if (others.empty()) return;
  MutexLock lock(mutex_);
  for (Member* other : others) {
    --other->calls;
  }
  told_.notify_all();
}

MemoryBackend::MemoryBackend(std::shared_ptr<MemoryStore> store, const StoreBackendOptions& options)
    : clock_(options.clock != nullptr ? *options.clock : system_clock()),
      remembered_(options.remembered),
      member_{options.changed},
      store_(std::move(store)) {
  store_->join(&member_);
}

MemoryBackend::~MemoryBackend() {
  close();
}

bool MemoryBackend::execute(std::span<StoreRequest* const> requests) {
  store_->execute(requests, &member_, clock_, remembered_);
  return true;
}

int64_t MemoryBackend::now_us() {
  return wall_us(clock_);
}

void MemoryBackend::close() {
  if (store_ == nullptr) return;
  store_->leave(&member_);
  store_.reset();
}

std::unique_ptr<StoreBackend> open_memory_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message) {
  if (place.empty()) {
    *error = EINVAL;
    *message = "a store in memory needs a name, as in memory:NAME";
    return nullptr;
  }
  Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  std::shared_ptr<MemoryStore> store =
      Runtime::current().part<MemoryStores>().open(place, options.create, clock);
  if (store == nullptr) {
    *error = ENOENT;
    *message = "there is no store in memory of the name " + place;
    return nullptr;
  }
  return std::make_unique<MemoryBackend>(std::move(store), options);
}

}  // namespace workflow

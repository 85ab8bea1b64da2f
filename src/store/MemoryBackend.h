#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/MemoryAnswers.h"
#include "store/MemoryTimers.h"
#include "store/StoreBackend.h"
#include "util/Clock.h"
#include "util/Mutex.h"

namespace workflow {

// A store in the memory of the process. All backends of its name share it; it is freed with the
// last of them. If memory runs out while a request is carried out, std::bad_alloc is thrown and the
// store is not to be used any more: it is made for tests.
//
// Thread-safe.
class MemoryStore {
 public:
  // What the store knows about one backend.
  struct Member {
    std::function<void()> changed;
    int calls = 0;  // guarded by the mutex of the store: calls of `changed` that are in progress
  };

  explicit MemoryStore(int64_t now_us) : timers_(now_us) {}

  void join(Member* member);
  // When this has returned, no call of the member is in progress or to come. Not to be called
  // inside one.
  void leave(Member* member);

  // Carries out the requests for `member`, and then tells the others if they need to know. Reads
  // the clock once.
  void execute(std::span<StoreRequest* const> requests, Member* member, Clock& clock,
               size_t remembered);

 private:
  // The other backends of the store are told of a timer that may be claimed within this time from
  // now. They look by themselves once a second. In a simulation they are told of every timer,
  // because they do not look there.
  static constexpr int64_t kSoonUs = 1'100'000;

  void tell_others(const Member* member) WF_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar told_;
  MemoryTimers timers_ WF_GUARDED_BY(mutex_);
  MemoryAnswers answers_ WF_GUARDED_BY(mutex_);
  std::vector<Member*> members_ WF_GUARDED_BY(mutex_);
};

// An open store in memory: see MemoryStore.
class MemoryBackend final : public StoreBackend {
 public:
  MemoryBackend(std::shared_ptr<MemoryStore> store, const StoreBackendOptions& options);
  ~MemoryBackend() override;

  // StoreBackend
  bool execute(std::span<StoreRequest* const> requests) override;
  int reopen(std::string* /*message*/) override { return 0; }
  WFStoreReceipt receipt() const override { return {WFStoreReceipt::kMemory, 0}; }
  int64_t now_us() override;
  void close() override;

 private:
  Clock& clock_;
  const size_t remembered_;
  MemoryStore::Member member_;
  std::shared_ptr<MemoryStore> store_;  // null when closed
};

}  // namespace workflow

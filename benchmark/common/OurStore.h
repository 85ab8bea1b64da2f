// What the programs of benchmark/store share that use our store: by its public interface only.
#pragma once

#include <workflow/WFFacilities.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/WFTimerStore.h>

#include <atomic>
#include <memory>
#include <string>

#include "common/StoreRows.h"

namespace bench {

// `file` is a file or, with "://" in it, a URL. `layout` is that of the URL; empty: the default
// one.
inline std::unique_ptr<WFTimerStore> open_store(const std::string& file,
                                                const WFStoreOptions& options = {},
                                                const std::string& layout = {}) {
  std::string message;
  const bool is_url = file.find("://") != std::string::npos;
  const std::string url =
      is_url ? file : "sqlite:" + file + (layout.empty() ? "" : "?layout=" + layout);
  std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url, options, &message));
  if (!store) fail_row(message);
  return store;
}

inline void check_result(const WFStoreResult& result) {
  if (!result.ok()) fail_row(result.message);
}

inline WFStoreTimer stored_timer(size_t number, const char* kind, const WFStoreDue& due) {
  WFStoreTimer timer;
  timer.name = stored_name(number);
  timer.due = due;
  timer.kind = kind;
  timer.payload = stored_payload();
  return timer;
}

// So many callers, each with one request under way: the callback of one starts the next. Create
// makes the task of a number with a callback.
template <class Create>
class Callers {
 public:
  Callers(size_t n, size_t callers, Create create)
      : n_(n), callers_(callers), create_(std::move(create)), ended_(static_cast<int>(callers)) {}
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  void run() {
    for (size_t i = 0; i < callers_; ++i) {
      next();
    }
    ended_.wait();
  }

 private:
  void next() {
    const size_t number = taken_.fetch_add(1, std::memory_order_relaxed);
    if (number >= n_) {
      ended_.done();
      return;
    }
    create_(number, [this](WFStoreTask* task) {
      check_result(task->result());
      next();
    })->start();
  }

  const size_t n_;
  const size_t callers_;
  const Create create_;
  WFFacilities::WaitGroup ended_;
  std::atomic<size_t> taken_{0};
};

}  // namespace bench

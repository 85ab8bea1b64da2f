// The rows of common/StoreRows.h for our store in a file of SQLite or in a Redis. Links: store.
//
// One caller is a thread that makes blocking calls. Several callers are chains of tasks. A file
// that is named by --file stays, and so does what is in the Redis whose URL --file is; otherwise
// there is a new file in --directory. --layout=owned is that of a store which one process owns.

#include <atomic>
#include <chrono>
#include <string>

#include "common/Measure.h"
#include "common/OurStore.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

constexpr const char* kKind = "expire";

class OurTimerStore {
 public:
  static constexpr const char* kPeer = "ours";

  OurTimerStore(const std::string& file, const WFStoreOptions& options, const std::string& layout)
      : file_(file), store_(open_store(file, options, layout)) {}
  ~OurTimerStore() { store_->close(); }
  OurTimerStore(const OurTimerStore&) = delete;
  OurTimerStore& operator=(const OurTimerStore&) = delete;

  void schedule(size_t first, size_t n, size_t callers, Due due) {
    const auto delay = due == Due::kNow ? std::chrono::hours(0) : std::chrono::hours(1);
    if (callers == 1) {
      for (size_t i = first; i < first + n; ++i) {
        check_result(store_->schedule(stored_timer(i, kKind, delay)));
      }
      return;
    }
    const auto create = [this, first, delay](size_t i, WFTimerStore::Callback callback) {
      return store_->create_schedule_task(stored_timer(first + i, kKind, delay),
                                          std::move(callback));
    };
    Callers requests(n, callers, create);
    requests.run();
  }

  void cancel(size_t n, size_t callers) {
    if (callers == 1) {
      for (size_t i = 0; i < n; ++i) {
        check_result(store_->cancel(stored_name(i)));
      }
      return;
    }
    const auto create = [this](size_t i, WFTimerStore::Callback callback) {
      return store_->create_cancel_task(stored_name(i), std::move(callback));
    };
    Callers requests(n, callers, create);
    requests.run();
  }

  // All are overdue, and overdue timers get half of the places.
  void take(size_t n, size_t callers) {
    WFStoreHandlerOptions options;
    options.max_running = 2 * callers;
    std::atomic<size_t> begun{0};
    if (store_->handle(
            kKind, [&begun](WFStoredTimer*) { ++begun; }, options) != 0) {
      fail_row("handle");
    }
    while (store_->stats().acknowledged < n) {
      sleep_ns(kNsPerMs);
    }
    if (begun != n) fail_row("runs were repeated");
  }

  void commit(size_t first, size_t n) { schedule(first, n, n, Due::kLater); }

  int64_t log_bytes() const { return file_bytes(file_ + "-wal"); }

  WFTimerStoreStats stats() const { return store_->stats(); }

 private:
  const std::string file_;
  const std::unique_ptr<WFTimerStore> store_;
};

// How long the store took for its groups, which are not always those that were started together.
void print_groups(const Options& options, const WFTimerStats::Lateness& commit) {
  const auto us = [&commit](double part) {
    return static_cast<double>(commit.percentile(part).count()) / kNsPerUs;
  };
  stored_line(options, "groups", OurTimerStore::kPeer)
      .add("commits", size_t{options.text("row", "") == "commits"})
      .add("count", static_cast<size_t>(commit.count))
      .add("p50_us", us(0.5))
      .add("p99_us", us(0.99))
      .add("max_us", us(1))
      .print();
}

void run(const Options& options) {
  WFStoreOptions store_options;
  store_options.catch_up_rate = 10'000'000;
  store_options.remembered = options.count("remembered", store_options.remembered);
  const OwnDirectory directory(options.text("directory", "."));
  const std::string file = options.text("file", directory.path() + "/timers.db");
  OurTimerStore store(file, store_options, options.text("layout", ""));
  run_store_row(store, options);
  if (options.text("row", "") != "share") print_groups(options, store.stats().group);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv));
  return 0;
}

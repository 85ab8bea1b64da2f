// What a store of many timers costs, and how it begins after a crash. Links: store.
//
//   fill      stores --n timers in --file: due in a year (--due=later) or long ago (--due=past).
//             Prints the bytes of the file for each.
//   lateness  --rate timers become due in each of --seconds seconds, in a store that holds others
//             besides: how late the handlers begin, and the memory of the process.
//   crash     begins to run the timers of the store and kills its own process in the middle.
//   overdue   opens the store after that: the time until the first handler begins, and how late
//             timers of 10 ms are meanwhile.
//
// --file may be a URL. --prefix, --peer and --server are those of common/StoreRows.h.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/Measure.h"
#include "common/OurStore.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

constexpr const char* kPeer = "ours";
constexpr size_t kCallers = 256;
constexpr const char* kStoredKind = "expire";
constexpr const char* kMeasuredKind = "measured";

void schedule_all(WFTimerStore& store, size_t n, const char* kind,
                  const std::function<WFStoreDue(size_t)>& due) {
  const auto create = [&](size_t i, WFTimerStore::Callback callback) {
    return store.create_schedule_task(stored_timer(i, kind, due(i)), std::move(callback));
  };
  Callers requests(n, kCallers, create);
  requests.run();
}

void fill(const std::string& file, const Options& options) {
  const size_t n = options.count("n", 1'000'000);
  const bool past = options.text("due", "later") == "past";
  const auto first = std::chrono::system_clock::now() +
                     (past ? -std::chrono::hours(24) : std::chrono::hours(24 * 365));
  const std::unique_ptr<WFTimerStore> store = open_store(file, {}, options.text("layout", ""));
  schedule_all(*store, n, kStoredKind,
               [first](size_t i) { return first + std::chrono::microseconds(i); });
  store->close();
  if (file.starts_with("redis")) return;
  stored_line(options, "bytes", kPeer)
      .add("n", n)
      .add("bytes", per_op(file_bytes(file), n))
      .print();
}

// How late handlers begin, in nanoseconds by the clock of the system.
class Lateness {
 public:
  void add(const WFStoredTimer& timer) {
    const auto late = std::chrono::system_clock::now() - timer.due();
    const std::lock_guard lock(mutex_);
    samples_.push_back(std::chrono::nanoseconds(late).count());
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return samples_.size();
  }
  void wait_for(size_t n, int64_t pause_ns) {
    while (size() < n) {
      sleep_ns(pause_ns);
    }
  }
  // Afterwards there are none.
  Quantiles take() {
    const std::lock_guard lock(mutex_);
    return Quantiles(std::move(samples_));
  }

 private:
  std::mutex mutex_;
  std::vector<int64_t> samples_;
};

void handle_measured(WFTimerStore& store, Lateness& lateness) {
  if (store.handle(kMeasuredKind, [&lateness](WFStoredTimer* timer) { lateness.add(*timer); }) !=
      0) {
    fail_row("handle");
  }
}

void measure_lateness(const std::string& file, const Options& options) {
  const size_t n = options.count("n", 1'000'000);
  const size_t rate = options.count("rate", 1000);
  const auto seconds = options.number("seconds", 10);
  const size_t due = rate * static_cast<size_t>(seconds);
  const std::unique_ptr<WFTimerStore> store = open_store(file, {}, options.text("layout", ""));
  Lateness lateness;
  // All are stored before the first is due.
  const auto first = std::chrono::system_clock::now() + std::chrono::seconds(2 + seconds / 2);
  const auto interval = std::chrono::nanoseconds(kNsPerSecond / static_cast<int64_t>(rate));
  schedule_all(*store, due, kMeasuredKind,
               [first, interval](size_t i) { return first + interval * static_cast<int64_t>(i); });
  handle_measured(*store, lateness);
  const int64_t server_before = server_cpu_ns(options);
  const int64_t cpu_before = process_cpu_ns();
  lateness.wait_for(due, 50 * kNsPerMs);
  const int64_t cpu_ns = process_cpu_ns() - cpu_before;
  const int64_t server_ns = server_cpu_ns(options) - server_before;
  Line line = stored_line(options, "lateness", kPeer);
  line.add("n", n)
      .add("resident_mb", static_cast<double>(resident_bytes()) / 1e6)
      .add("cpu_us", per_op(cpu_ns, due) / kNsPerUs);
  if (server_before != 0) line.add("server_us", per_op(server_ns, due) / kNsPerUs);
  add_quantiles(line, lateness.take());
  line.print();
  store->close();
}

void crash(const std::string& file, const Options& options) {
  const size_t runs = options.count("runs", 2000);
  const std::unique_ptr<WFTimerStore> store = open_store(file, {}, options.text("layout", ""));
  std::atomic<size_t> begun{0};
  const auto handler = [&begun, runs](WFStoredTimer*) {
    if (++begun == runs) ::kill(::getpid(), SIGKILL);
  };
  if (store->handle(kStoredKind, handler) != 0) fail_row("handle");
  for (;;) {
    ::pause();
  }
}

void measure_overdue(const std::string& file, const Options& options) {
  const size_t n = options.count("n", 1'000'000);
  const size_t timers = options.count("timers", 200);
  const int64_t begin_ns = now_ns();
  const std::unique_ptr<WFTimerStore> store = open_store(file, {}, options.text("layout", ""));
  const int64_t opened_ns = now_ns();
  std::atomic<int64_t> first_ns{0};
  std::atomic<size_t> begun{0};
  const auto handler = [&first_ns, &begun](WFStoredTimer*) {
    if (++begun == 1) first_ns = now_ns();
  };
  if (store->handle(kStoredKind, handler) != 0) fail_row("handle");
  while (first_ns == 0) {
    sleep_ns(kNsPerMs / 10);
  }
  stored_line(options, "after_kill", kPeer)
      .add("n", n)
      .add("open_ms", static_cast<double>(opened_ns - begin_ns) / kNsPerMs)
      .add("first_ms", static_cast<double>(first_ns - begin_ns) / kNsPerMs)
      .print();

  Lateness lateness;
  handle_measured(*store, lateness);
  const size_t begun_before = begun;
  const int64_t since_ns = now_ns();
  for (size_t i = 0; i < timers; ++i) {
    check_result(store->schedule(stored_timer(i, kMeasuredKind, std::chrono::milliseconds(10))));
    lateness.wait_for(i + 1, kNsPerMs);
  }
  const double passed_s = static_cast<double>(now_ns() - since_ns) / kNsPerSecond;
  Line line = stored_line(options, "beside_overdue", kPeer);
  line.add("n", n).add("overdue_per_s", static_cast<double>(begun - begun_before) / passed_s);
  add_quantiles(line, lateness.take());
  line.print();
  store->close();
}

void run(const Options& options) {
  const std::string row = options.text("row", "lateness");
  const std::string file = options.text("file", "");
  if (file.empty()) fail_row("--file is missing");
  if (row == "fill") {
    fill(file, options);
  } else if (row == "lateness") {
    measure_lateness(file, options);
  } else if (row == "crash") {
    crash(file, options);
  } else if (row == "overdue") {
    measure_overdue(file, options);
  } else {
    fail_row("no row '" + row + "'");
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv));
  return 0;
}

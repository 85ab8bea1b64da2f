// The rows of timers that are kept on a disk, written once for our store, for bare SQLite and for
// the peers. Each one brings an adaptor, a class with
//
//   static constexpr const char* kPeer;
//   void schedule(size_t first, size_t n, size_t callers, Due due);
//       Stores the timers `first` to `first + n - 1`. `callers` requests are under way at a time.
//       Returns when all are durable.
//   void cancel(size_t n, size_t callers);
//       Ends the timers 0 to n - 1, each by its name if there are names.
//   void take(size_t n, size_t callers);
//       Claims n timers that are due, and acknowledges each of them after an empty run.
//   void commit(size_t first, size_t n);
//       As schedule(), but in one transaction if there are transactions.
//   int64_t log_bytes();
//       The present size of the log; 0 if there is none.
//
// Rows (--row=):
//   schedule, cancel, take   --n timers, --callers at a time, in a store that has run before
//   commits                  --group timers for each commit, for --seconds; the size of the log
//   share                    as commits, as one of several processes: begins --begin-at seconds
//                            after 1970, names timers by --process
//
// --peer and --prefix change the peer and the first word of the rows that are printed, so that one
// program can stand for several peers of several tables. --server is the process id of a server
// whose CPU is measured, too.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/Measure.h"

namespace bench {

enum class Due { kLater, kNow };

// Timers of different processes have different numbers.
inline constexpr size_t kNumbersOfProcess = 10'000'000;

inline std::string stored_name(size_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "order/%08zu", number);
  return text;
}

inline const std::string& stored_payload() {
  static const std::string payload(32, 'p');
  return payload;
}

[[noreturn]] inline void fail_row(const std::string& what) {
  std::fprintf(stderr, "benchmark: %s\n", what.c_str());
  std::_Exit(1);
}

inline int64_t file_bytes(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// A new directory below `parent`, removed at the end.
class OwnDirectory {
 public:
  explicit OwnDirectory(const std::string& parent) : path_(parent + "/workflow-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) fail_row(path_ + ": " + std::strerror(errno));
  }
  ~OwnDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Line stored_line(const Options& options, const std::string& row, const char* peer) {
  return Line(options.text("prefix", "store") + "_" + row, options.text("peer", peer));
}

// The CPU of the server --server so far; 0 if there is none.
inline int64_t server_cpu_ns(const Options& options) {
  const auto server = static_cast<pid_t>(options.number("server", 0));
  clockid_t clock;
  if (server == 0 || ::clock_getcpuclockid(server, &clock) != 0) return 0;
  return read_clock_ns(clock);
}

// The CPU is that of this process, and besides that of --server.
template <class Work>
void measure_stored(const Options& options, const char* row, const char* peer, size_t n,
                    size_t callers, Work work) {
  const int64_t server_before = server_cpu_ns(options);
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  work();
  const int64_t wall_ns = now_ns() - begin_ns;
  const int64_t cpu_ns = process_cpu_ns() - cpu_before;
  Line line = stored_line(options, row, peer);
  line.add("n", n)
      .add("callers", callers)
      .add("many", size_t{callers > 1})
      .add("per_s", static_cast<double>(n) * kNsPerSecond / static_cast<double>(wall_ns))
      .add("cpu_us", per_op(cpu_ns, n) / kNsPerUs);
  if (server_before != 0) {
    line.add("server_us", per_op(server_cpu_ns(options) - server_before, n) / kNsPerUs);
  }
  line.print();
}

struct Commits {
  std::vector<int64_t> ns;
  int64_t longest_log_bytes = 0;
};

// Commits groups of timers, one after the other, until `seconds` have passed.
template <class Store>
Commits commit_groups(Store& store, size_t first, size_t group, int64_t seconds) {
  Commits commits;
  const int64_t end_ns = now_ns() + seconds * kNsPerSecond;
  for (int64_t begin_ns = now_ns(); begin_ns < end_ns; begin_ns = now_ns()) {
    store.commit(first + commits.ns.size() * group, group);
    commits.ns.push_back(now_ns() - begin_ns);
    commits.longest_log_bytes = std::max(commits.longest_log_bytes, store.log_bytes());
  }
  return commits;
}

inline void add_quantiles(Line& line, const Quantiles& ns) {
  line.add("p50_us", static_cast<double>(ns.at(0.5)) / kNsPerUs)
      .add("p99_us", static_cast<double>(ns.at(0.99)) / kNsPerUs)
      .add("max_us", static_cast<double>(ns.max()) / kNsPerUs)
      .add("min_us", static_cast<double>(ns.min()) / kNsPerUs);
}

template <class Store>
void run_commits(Store& store, const Options& options) {
  const size_t group = options.count("group", 10);
  Commits commits = commit_groups(store, 0, group, options.number("seconds", 60));
  const size_t count = commits.ns.size();
  const Quantiles ns(std::move(commits.ns));
  stored_line(options, "commits", Store::kPeer)
      .add("group", group)
      .add("count", count)
      .add("p50_us", static_cast<double>(ns.at(0.5)) / kNsPerUs)
      .add("p99_us", static_cast<double>(ns.at(0.99)) / kNsPerUs)
      .add("max_us", static_cast<double>(ns.max()) / kNsPerUs)
      .add("log_mb", static_cast<double>(commits.longest_log_bytes) / 1e6)
      .print();
}

template <class Store>
void run_share(Store& store, const Options& options) {
  const size_t process = options.count("process", 0);
  const int64_t begin_ns = options.number("begin-at", 0) * kNsPerSecond;
  sleep_ns(std::max<int64_t>(begin_ns - read_clock_ns(CLOCK_REALTIME), 0));
  Commits commits = commit_groups(store, process * kNumbersOfProcess, options.count("group", 10),
                                  options.number("seconds", 10));
  const size_t count = commits.ns.size();
  const Quantiles ns(std::move(commits.ns));
  stored_line(options, "share_of", Store::kPeer)
      .add("process", process)
      .add("count", count)
      .add("p99_ms", static_cast<double>(ns.at(0.99)) / kNsPerMs)
      .add("longest_ms", static_cast<double>(ns.max()) / kNsPerMs)
      .print();
}

// Stores timers until the log has reached the size at which it begins anew, as it has in a store
// that has run for a while. As long as a file grows, each sync takes longer. A store without a log
// gets one timer.
template <class Store>
void use_whole_log(Store& store, size_t callers) {
  constexpr size_t kStep = 1'000;
  constexpr size_t kMost = 20'000;  // a log may have no such size
  store.schedule(kNumbersOfProcess, 1, 1, Due::kLater);
  int64_t before = 0;
  for (size_t n = 1; n < kMost && store.log_bytes() > before; n += kStep) {
    before = store.log_bytes();
    store.schedule(kNumbersOfProcess + n, kStep, callers, Due::kLater);
  }
}

template <class Store>
void run_store_row(Store& store, const Options& options) {
  // What comes before the measured part is prepared by so many callers.
  constexpr size_t kPreparing = 64;
  const std::string row = options.text("row", "schedule");
  const size_t n = options.count("n", 10'000);
  const size_t callers = options.count("callers", 64);
  if (row == "schedule") {
    use_whole_log(store, kPreparing);
    measure_stored(options, "schedule", Store::kPeer, n, callers,
                   [&] { store.schedule(0, n, callers, Due::kLater); });
  } else if (row == "cancel") {
    store.schedule(0, n, kPreparing, Due::kLater);
    measure_stored(options, "cancel", Store::kPeer, n, callers, [&] { store.cancel(n, callers); });
  } else if (row == "take") {
    store.schedule(0, n, kPreparing, Due::kNow);
    measure_stored(options, "take", Store::kPeer, n, callers, [&] { store.take(n, callers); });
  } else if (row == "commits") {
    run_commits(store, options);
  } else if (row == "share") {
    run_share(store, options);
  } else {
    fail_row("no row '" + row + "'");
  }
}

}  // namespace bench

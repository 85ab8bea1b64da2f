// The rows of common/StoreRows.h for SQLite alone: the tables of our store and the statements that
// it executes for the same requests, one thread, no queue, no checksums, and SQLite's own busy
// handler and automatic checkpoints. Links: store, SQLite.
//
// `callers` requests are one transaction, which is what requests that come at the same time are at
// best. The tables are copied from a store that the library has created, so that they cannot
// differ from its own; a statement that no longer fits them fails.

#include <sqlite3.h>
#include <workflow/WFTimerStore.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/Measure.h"
#include "common/OurStore.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

constexpr int64_t kKind = 1;
constexpr int64_t kHourUs = 3'600'000'000;
constexpr int kBusyMs = 60'000;

int64_t wall_us() {
  return read_clock_ns(CLOCK_REALTIME) / kNsPerUs;
}

class Database {
 public:
  Database(const std::string& file, int flags) {
    check(sqlite3_open_v2(file.c_str(), &handle_, flags | SQLITE_OPEN_NOMUTEX, nullptr));
    check(sqlite3_busy_timeout(handle_, kBusyMs));
  }
  ~Database() { sqlite3_close_v2(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  sqlite3* handle() { return handle_; }

  void run(const std::string& sql) {
    check(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr));
  }

  void check(int code) {
    if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE) {
      fail_row(handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code));
    }
  }

 private:
  sqlite3* handle_ = nullptr;
};

// A prepared statement. Parameters are integers and texts, which must stay valid until the next
// call.
class Statement {
 public:
  Statement(Database& database, const char* sql) : database_(database) {
    database.check(sqlite3_prepare_v3(database.handle(), sql, -1, SQLITE_PREPARE_PERSISTENT,
                                      &statement_, nullptr));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Goes to the first row. Returns false if there is none.
  template <class... Values>
  bool find(const Values&... values) {
    sqlite3_reset(statement_);
    int position = 0;
    (bind(++position, values), ...);
    return next();
  }
  bool next() {
    const int code = sqlite3_step(statement_);
    database_.check(code);
    if (code != SQLITE_ROW) sqlite3_reset(statement_);
    return code == SQLITE_ROW;
  }
  // Used for a statement whose rows are not read to the end.
  void reset() { sqlite3_reset(statement_); }

  template <class... Values>
  void run(const Values&... values) {
    for (bool found = find(values...); found; found = next()) {
    }
  }

  int64_t integer(int column) { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) {
    const void* const bytes = sqlite3_column_blob(statement_, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return size ? std::string(static_cast<const char*>(bytes), size) : std::string();
  }

 private:
  void bind(int position, int64_t value) { sqlite3_bind_int64(statement_, position, value); }
  void bind(int position, const std::string& text) {
    sqlite3_bind_blob(statement_, position, text.data(), static_cast<int>(text.size()),
                      SQLITE_STATIC);
  }

  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
};

// Creates the tables of a store in `file`, unless another process has done so.
void create_tables(const std::string& file, const std::string& directory) {
  std::vector<std::string> tables;
  {
    const std::string example = directory + "/example.db";
    open_store(example)->close();
    Database database(example, SQLITE_OPEN_READWRITE);
    Statement select(database, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL");
    for (bool found = select.find(); found; found = select.next()) {
      tables.push_back(select.text(0));
    }
  }
  Database database(file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  database.run("PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; BEGIN IMMEDIATE");
  if (!Statement(database, "SELECT 1 FROM sqlite_schema").find()) {
    for (const std::string& table : tables) {
      database.run(table);
    }
    database.run("INSERT INTO meta VALUES(1, 1, 0, 0, 0, 1, 0, 0, 0, 0);");
    database.run("INSERT INTO kinds VALUES(1, x'657870697265')");
  }
  database.run("COMMIT");
}

// What the store keeps in one row of the table `meta` and one of `sessions`.
struct Counters {
  int64_t fence = 0;
  int64_t timer = 0;
  int64_t ended = 0;
  int64_t commits = 0;
  int64_t stored = 0;
  int64_t newest = 0;
  int64_t remembered = 0;
  int64_t forgotten = 0;
};

class BareSqlite {
 public:
  static constexpr const char* kPeer = "sqlite";

  BareSqlite(const std::string& file, int64_t session, int64_t remembered)
      : file_(file),
        session_(session),
        remembered_(remembered),
        database_(file, SQLITE_OPEN_READWRITE) {
    database_.run("PRAGMA synchronous = FULL; PRAGMA cache_size = -16384; PRAGMA mmap_size = 0");
  }

  void schedule(size_t first, size_t n, size_t callers, Due due) {
    for (size_t i = 0; i < n; i += callers) {
      transact([&] {
        for (size_t j = i; j < std::min(i + callers, n); ++j) {
          insert(stored_name(first + j), due);
        }
      });
    }
  }

  void commit(size_t first, size_t n) { schedule(first, n, n, Due::kLater); }

  void cancel(size_t n, size_t callers) {
    for (size_t i = 0; i < n; i += callers) {
      transact([&] {
        for (size_t j = i; j < std::min(i + callers, n); ++j) {
          cancel(stored_name(j));
        }
      });
    }
  }

  // A transaction acknowledges what was claimed by the one before it, and claims more.
  void take(size_t n, size_t callers) {
    std::vector<Run> runs;
    size_t taken = 0;
    do {
      transact([&] {
        for (const Run& run : runs) {
          acknowledge(run);
        }
        runs.clear();
        claim(static_cast<int64_t>(callers), runs);
      });
      taken += runs.size();
    } while (!runs.empty());
    if (taken != n) fail_row("bare SQLite has not taken all timers");
  }

  int64_t log_bytes() const { return file_bytes(file_ + "-wal"); }

 private:
  struct Run {
    int64_t timer;
    int64_t fence;
    int64_t attempts;
    std::string name;
    std::string payload;
  };

  template <class Work>
  void transact(Work work) {
    begin_.run();
    load();
    work();
    save();
    commit_.run();
  }

  void load() {
    if (!meta_.find()) fail_row("the row of `meta` is missing");
    counters_.fence = meta_.integer(1);
    counters_.timer = meta_.integer(2);
    counters_.ended = meta_.integer(3);
    counters_.commits = meta_.integer(4);
    counters_.stored = meta_.integer(5);
    meta_.reset();
    if (find_session_.find(session_)) {
      counters_.newest = find_session_.integer(0);
      counters_.remembered = find_session_.integer(1);
      counters_.forgotten = find_session_.integer(2);
      find_session_.reset();
    }
  }

  void save() {
    forget_ended();
    forget_answers();
    save_session_.run(session_, counters_.newest, counters_.remembered, counters_.forgotten,
                      wall_us());
    save_meta_.run(counters_.fence, counters_.timer, counters_.ended, ++counters_.commits,
                   counters_.stored);
  }

  void remember(const std::string& answer) {
    if (remembered_ == 0) return;
    insert_answer_.run(session_, ++counters_.newest, answer);
    counters_.remembered++;
  }

  void forget_answers() {
    const int64_t surplus = counters_.remembered - remembered_;
    if (surplus <= 0) return;
    oldest_answer_.find(session_, surplus - 1);
    counters_.forgotten = oldest_answer_.integer(0);
    oldest_answer_.reset();
    remove_answers_.run(session_, counters_.forgotten);
    counters_.remembered = remembered_;
  }

  void insert(const std::string& name, Due due) {
    const int64_t due_us = wall_us() + (due == Due::kLater ? kHourUs : 0);
    insert_.run(++counters_.timer, name, kKind, due_us, ++counters_.fence, stored_payload());
    counters_.stored++;
    remember(schedule_answer_);
  }

  void cancel(const std::string& name) {
    if (!find_.find(name)) fail_row("a timer is missing");
    const int64_t timer = find_.integer(0);
    const int64_t attempts = find_.integer(5);
    while (find_.next()) {
    }
    end(timer, name, attempts, 2);
    remember(cancel_answer_);
  }

  void end(int64_t timer, const std::string& name, int64_t attempts, int64_t outcome) {
    remove_.run(timer);
    counters_.stored--;
    insert_done_.run(++counters_.ended, name, timer, outcome, wall_us(), attempts);
    if (!std::exchange(has_ended_, true)) {
      any_follows_.run();
    }
  }

  void forget_ended() {
    const int64_t last = counters_.ended - remembered_;
    if (!std::exchange(has_ended_, false) || last <= 0) return;
    newest_time_.run(last);
    remove_done_.run(last);
  }

  void claim(int64_t most, std::vector<Run>& runs) {
    const int64_t now_us = wall_us();
    marked_.run(now_us);
    for (Statement* const select : {&fresh_, &overdue_}) {
      const int64_t left = most - static_cast<int64_t>(runs.size());
      bool found = select == &fresh_ ? fresh_.find(kKind, now_us - 1'000'000, now_us, left)
                                     : overdue_.find(kKind, now_us - 1'000'000, left);
      for (; found; found = select->next()) {
        runs.push_back({select->integer(0), ++counters_.fence, select->integer(4) + 1,
                        select->text(1), select->text(7)});
      }
    }
    for (const Run& run : runs) {
      lease_.run(run.timer, now_us + 30'000'000, run.fence, owner_, run.attempts);
    }
    due_.run(kKind, now_us);
    next_.run(kKind, now_us);
  }

  void acknowledge(const Run& run) {
    if (!run_.find(run.timer) || run_.integer(1) != run.fence) fail_row("a lease is missing");
    run_.reset();
    end(run.timer, run.name, run.attempts, 1);
  }

  const std::string file_;
  const int64_t session_;
  const int64_t remembered_;
  Counters counters_;
  bool has_ended_ = false;
  // As long as those that the store writes.
  const std::string schedule_answer_ = std::string(8, 's');
  const std::string cancel_answer_ = std::string(18, 'c');
  const std::string owner_ = "benchmark:1";

  Database database_;
  Statement begin_{database_, "BEGIN IMMEDIATE"};
  Statement commit_{database_, "COMMIT"};
  Statement meta_{database_, "SELECT identity, fence, timer, ended, commits, stored FROM meta"};
  Statement save_meta_{database_,
                       "UPDATE meta SET fence = ?, timer = ?, ended = ?, commits = ?, stored = ?"
                       " WHERE only_row = 1"};
  Statement find_session_{database_,
                          "SELECT newest, remembered, forgotten FROM sessions WHERE session = ?"};
  Statement save_session_{database_,
                          "INSERT INTO sessions(session, newest, remembered, forgotten, used)"
                          " VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT(session) DO UPDATE SET"
                          " newest = ?2, remembered = ?3, forgotten = ?4, used = ?5"};
  Statement insert_answer_{database_,
                           "INSERT INTO answers(session, number, answer) VALUES(?, ?, ?)"};
  Statement oldest_answer_{database_,
                           "SELECT number FROM answers WHERE session = ?"
                           " ORDER BY number LIMIT 1 OFFSET ?"};
  Statement remove_answers_{database_, "DELETE FROM answers WHERE session = ? AND number <= ?"};
  Statement insert_{database_,
                    "INSERT INTO timers(id, name, kind, wake, due, state, fence, owner, attempts,"
                    " skip_after, repeat, marked, follows, reason, payload)"
                    " VALUES(?1, ?2, ?3, ?4, ?4, 0, ?5, NULL, 0, -1, NULL, 0, NULL, NULL, ?6)"};
  Statement find_{database_,
                  "SELECT id, state, wake, fence, owner, attempts"
                  " FROM timers INDEXED BY timers_name"
                  " WHERE name = ? AND state < 3 ORDER BY id"};
  Statement remove_{database_, "DELETE FROM timers WHERE id = ?"};
  Statement any_follows_{database_,
                         "SELECT 1 FROM timers INDEXED BY timers_follows"
                         " WHERE follows IS NOT NULL LIMIT 1"};
  Statement insert_done_{database_,
                         "INSERT INTO done(id, name, timer, outcome, at, attempts)"
                         " VALUES(?, ?, ?, ?, ?, ?)"};
  Statement newest_time_{database_, "SELECT max(at) FROM done WHERE id <= ?"};
  Statement remove_done_{database_, "DELETE FROM done WHERE id <= ?"};
  Statement marked_{database_,
                    "SELECT id, name, attempts FROM timers INDEXED BY timers_marked"
                    " WHERE marked = 1 AND wake <= ?"};
  Statement fresh_{database_,
                   "SELECT id, name, kind, due, attempts, skip_after, repeat, payload"
                   " FROM timers INDEXED BY timers_wake"
                   " WHERE kind = ? AND wake >= ? AND wake <= ? ORDER BY wake, id LIMIT ?"};
  Statement overdue_{database_,
                     "SELECT id, name, kind, due, attempts, skip_after, repeat, payload"
                     " FROM timers INDEXED BY timers_wake"
                     " WHERE kind = ? AND wake < ? ORDER BY wake, id LIMIT ?"};
  Statement lease_{database_,
                   "UPDATE timers SET state = 1, wake = ?2, fence = ?3, owner = ?4, attempts = ?5"
                   " WHERE id = ?1"};
  Statement due_{database_,
                 "SELECT 1 FROM timers INDEXED BY timers_wake"
                 " WHERE kind = ? AND wake <= ? LIMIT 1"};
  Statement next_{database_,
                  "SELECT wake FROM timers INDEXED BY timers_wake"
                  " WHERE kind = ? AND wake > ? ORDER BY wake LIMIT 1"};
  Statement run_{database_,
                 "SELECT state, fence, wake, marked, attempts, name FROM timers WHERE id = ?"};
};

void run(const Options& options) {
  const OwnDirectory directory(options.text("directory", "."));
  const std::string file = options.text("file", directory.path() + "/timers.db");
  create_tables(file, directory.path());
  BareSqlite store(file, options.number("process", 0) + 1, options.number("remembered", 10'000));
  run_store_row(store, options);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv));
  return 0;
}

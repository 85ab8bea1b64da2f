// The rows of common/StoreRows.h for PostgreSQL: a table of timers with an index on the name and
// one on the time, synchronous_commit=on, each request a transaction. Links: postgresql.
//
// Each caller is a thread with a connection of its own, with prepared statements; --connect names
// the server. The table is made anew. A timer is claimed by an update that skips locked rows, and
// acknowledged when its row is deleted.

#include <libpq-fe.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/Measure.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

class Connection {
 public:
  explicit Connection(const std::string& place) : handle_(PQconnectdb(place.c_str())) {
    if (PQstatus(handle_) != CONNECTION_OK) fail_row(PQerrorMessage(handle_));
  }
  ~Connection() { PQfinish(handle_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void run(const char* sql) { check(Result(PQexec(handle_, sql), PQclear)); }
  void prepare(const char* name, const char* sql) {
    check(Result(PQprepare(handle_, name, sql, 0, nullptr), PQclear));
  }
  // Returns the first value of the only row; empty if there is none.
  std::string execute(const char* name, const std::vector<std::string>& values) {
    std::vector<const char*> texts;
    for (const std::string& value : values) {
      texts.push_back(value.c_str());
    }
    const Result result(PQexecPrepared(handle_, name, static_cast<int>(texts.size()), texts.data(),
                                       nullptr, nullptr, 0),
                        PQclear);
    check(result);
    return PQntuples(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0) : "";
  }

 private:
  using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

  void check(const Result& result) {
    const ExecStatusType status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail_row(PQerrorMessage(handle_));
  }

  PGconn* const handle_;
};

class Postgresql {
 public:
  static constexpr const char* kPeer = "postgresql";

  explicit Postgresql(std::string place) : place_(std::move(place)) {
    Connection connection(place_);
    connection.run("SET client_min_messages = error");
    connection.run("DROP TABLE IF EXISTS timers");
    connection.run(
        "CREATE TABLE timers(id bigserial PRIMARY KEY, name text NOT NULL, kind int NOT NULL,"
        " due timestamptz NOT NULL, attempts int NOT NULL, payload text NOT NULL)");
    connection.run("CREATE INDEX timers_name ON timers(name)");
    connection.run("CREATE INDEX timers_due ON timers(kind, due)");
  }

  void schedule(size_t first, size_t n, size_t callers, Due due) {
    const std::string delay = due == Due::kNow ? "0" : "3600";
    each(n, callers, [first, &delay](Connection& connection, size_t i) {
      connection.execute("schedule", {stored_name(first + i), delay, stored_payload()});
    });
  }

  void cancel(size_t n, size_t callers) {
    each(n, callers, [](Connection& connection, size_t i) {
      if (connection.execute("cancel", {stored_name(i)}).empty()) fail_row("a timer is missing");
    });
  }

  void take(size_t n, size_t callers) {
    each(n, callers, [](Connection& connection, size_t) {
      const std::string id = connection.execute("claim", {});
      if (id.empty()) fail_row("no timer is due");
      connection.execute("acknowledge", {id});
    });
  }

  void commit(size_t first, size_t n) {
    if (!writer_) writer_ = connect();
    writer_->run("BEGIN");
    for (size_t i = first; i < first + n; ++i) {
      writer_->execute("schedule", {stored_name(i), "3600", stored_payload()});
    }
    writer_->run("COMMIT");
  }

  int64_t log_bytes() const { return 0; }

 private:
  std::unique_ptr<Connection> connect() const {
    auto connection = std::make_unique<Connection>(place_);
    connection->prepare("schedule",
                        "INSERT INTO timers(name, kind, due, attempts, payload)"
                        " VALUES($1, 1, now() + make_interval(secs => $2::float), 0, $3)");
    connection->prepare("cancel", "DELETE FROM timers WHERE name = $1 RETURNING id");
    connection->prepare("claim",
                        "UPDATE timers SET due = now() + interval '30 seconds',"
                        " attempts = attempts + 1 WHERE id = (SELECT id FROM timers"
                        " WHERE kind = 1 AND due <= now() ORDER BY due LIMIT 1"
                        " FOR UPDATE SKIP LOCKED) RETURNING id, name, payload");
    connection->prepare("acknowledge", "DELETE FROM timers WHERE id = $1");
    return connection;
  }

  template <class Work>
  void each(size_t n, size_t callers, Work work) {
    std::atomic<size_t> taken{0};
    std::vector<std::thread> threads;
    for (size_t caller = 0; caller < callers; ++caller) {
      threads.emplace_back([&] {
        const std::unique_ptr<Connection> connection = connect();
        for (size_t i = taken++; i < n; i = taken++) {
          work(*connection, i);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  const std::string place_;
  std::unique_ptr<Connection> writer_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::Postgresql store(options.text("connect", ""));
  bench::run_store_row(store, options);
  return 0;
}

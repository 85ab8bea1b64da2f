// The rows of common/StoreRows.h for a Redis alone, in the plain way: a hash has the timers, a
// sorted set has when they are due, another one has which are leased, and each request is one small
// script. Missing are a table of names (a name is the key of its only timer), fences, attempts,
// answers that are remembered, and the timers that have ended. Links: redis, the client hiredis.
//
// One thread and one connection to the unix socket --socket. A caller is a request that was written
// and not yet answered. Besides:
//
//   lateness  --rate timers become due in each of --seconds seconds: how late a worker sees each of
//             them that claims what is due, and then sleeps until the next one is.

#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/Measure.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kLeaseUs = 30'000'000;

// KEYS: 1 the timers, 2 when they are due, 3 when their leases end.
// ARGV: a name, when it is due, and the timer.
constexpr const char* kSchedule = R"lua(
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
)lua";
// ARGV: a name.
constexpr const char* kCancel = R"lua(
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
)lua";
// ARGV: the time, the end of the lease, how many at most. Returns the time of the next one, and a
// name, its time and its timer for each.
constexpr const char* kClaim = R"lua(
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local result = {''}
for i = 1, #due, 2 do
  redis.call('ZREM', KEYS[2], due[i])
  redis.call('ZADD', KEYS[3], ARGV[2], due[i])
  result[#result + 1] = due[i]
  result[#result + 1] = due[i + 1]
  result[#result + 1] = redis.call('HGET', KEYS[1], due[i])
end
if #due == 0 then result[1] = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or '' end
return result
)lua";
// ARGV: a name.
constexpr const char* kAcknowledge = R"lua(
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
)lua";

int64_t wall_us() {
  return read_clock_ns(CLOCK_REALTIME) / kNsPerUs;
}

class Connection {
 public:
  using Reply = std::unique_ptr<redisReply, void (*)(void*)>;

  explicit Connection(const std::string& socket) : context_(redisConnectUnix(socket.c_str())) {
    if (context_ == nullptr || context_->err != 0) fail_row("cannot connect to " + socket);
  }
  ~Connection() { redisFree(context_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(std::initializer_list<std::string_view> words) {
    std::array<const char*, 12> texts;
    std::array<size_t, 12> sizes;
    size_t count = 0;
    for (const std::string_view word : words) {
      texts.at(count) = word.data();
      sizes.at(count++) = word.size();
    }
    redisAppendCommandArgv(context_, static_cast<int>(count), texts.data(), sizes.data());
  }

  Reply receive() {
    void* reply = nullptr;
    if (redisGetReply(context_, &reply) != REDIS_OK) fail_row(context_->errstr);
    Reply owned(static_cast<redisReply*>(reply), freeReplyObject);
    if (owned->type == REDIS_REPLY_ERROR) fail_row(owned->str);
    return owned;
  }

 private:
  redisContext* const context_;
};

class Script {
 public:
  Script(Connection& connection, const char* text) : connection_(connection) {
    connection.send({"SCRIPT", "LOAD", text});
    const Connection::Reply reply = connection.receive();
    sha_.assign(reply->str, reply->len);
  }

  void send(std::string_view first, std::string_view second = {}, std::string_view third = {}) {
    connection_.send(
        {"EVALSHA", sha_, "3", "bare:timers", "bare:due", "bare:leased", first, second, third});
  }

 private:
  Connection& connection_;
  std::string sha_;
};

class RedisBare {
 public:
  static constexpr const char* kPeer = "bare";

  explicit RedisBare(const std::string& socket) : connection_(socket) {}

  void schedule(size_t first, size_t n, size_t callers, Due due) {
    const int64_t delay_us = due == Due::kLater ? kHourUs : 0;
    each(n, callers, [&](size_t i) { insert(first + i, wall_us() + delay_us); });
  }

  void cancel(size_t n, size_t callers) {
    each(n, callers, [this](size_t i) { cancel_.send(stored_name(i)); });
  }

  // Each caller claims one timer, and acknowledges it when it has it.
  void take(size_t n, size_t callers) {
    std::deque<bool> claims;  // of the requests that were not yet answered
    size_t begun = 0;
    const auto claim = [&] {
      send_claim(1);
      claims.push_back(true);
      ++begun;
    };
    while (begun < std::min(callers, n)) {
      claim();
    }
    for (size_t ended = 0; ended < n;) {
      const Connection::Reply reply = connection_.receive();
      const bool was_claim = claims.front();
      claims.pop_front();
      if (was_claim) {
        if (reply->elements != 4) fail_row("a timer is missing");
        acknowledge(*reply->element[1]);
        claims.push_back(false);
      } else {
        check(*reply);
        ++ended;
        if (begun < n) claim();
      }
    }
  }

  void commit(size_t, size_t) { fail_row("a bare Redis has no transactions of several requests"); }
  int64_t log_bytes() const { return 0; }

  // Stores timers from number `first` on, due one after the other, and takes them. Returns how late
  // each was, in nanoseconds. `begin` is called when all are stored.
  template <class Begin>
  std::vector<int64_t> take_when_due(size_t first, size_t n, int64_t first_us, int64_t interval_us,
                                     Begin begin) {
    each(n, 256,
         [&](size_t i) { insert(first + i, first_us + static_cast<int64_t>(i) * interval_us); });
    begin();
    std::vector<int64_t> late_ns;
    size_t acknowledged = 0;
    while (late_ns.size() < n) {
      send_claim(64);
      for (; acknowledged < late_ns.size(); ++acknowledged) {
        check(*connection_.receive());
      }
      const Connection::Reply claimed = connection_.receive();
      for (size_t i = 1; i < claimed->elements; i += 3) {
        const int64_t due_us = std::strtoll(claimed->element[i + 1]->str, nullptr, 10);
        late_ns.push_back(read_clock_ns(CLOCK_REALTIME) - due_us * kNsPerUs);
        acknowledge(*claimed->element[i]);
      }
      if (claimed->elements == 1) {
        const int64_t next_us = std::strtoll(claimed->element[0]->str, nullptr, 10);
        sleep_ns(std::max<int64_t>(next_us - wall_us(), 0) * kNsPerUs);
      }
    }
    for (; acknowledged < n; ++acknowledged) {
      check(*connection_.receive());
    }
    return late_ns;
  }

 private:
  template <class Send>
  void each(size_t n, size_t callers, Send send) {
    size_t begun = 0;
    while (begun < std::min(callers, n)) {
      send(begun++);
    }
    for (size_t ended = 0; ended < n; ++ended) {
      check(*connection_.receive());
      if (begun < n) send(begun++);
    }
  }

  static void check(const redisReply& reply) {
    if (reply.integer != 1) fail_row("a timer is missing, or was there already");
  }

  void insert(size_t number, int64_t due_us) {
    schedule_.send(stored_name(number), std::to_string(due_us), "expire:" + stored_payload());
  }
  void send_claim(size_t most) {
    const int64_t now_us = wall_us();
    claim_.send(std::to_string(now_us), std::to_string(now_us + kLeaseUs), std::to_string(most));
  }
  void acknowledge(const redisReply& name) {
    acknowledge_.send(std::string_view(name.str, name.len));
  }

  Connection connection_;
  Script schedule_{connection_, kSchedule};
  Script cancel_{connection_, kCancel};
  Script claim_{connection_, kClaim};
  Script acknowledge_{connection_, kAcknowledge};
};

void measure_lateness(RedisBare& store, const Options& options) {
  const int64_t rate = options.number("rate", 1000);
  const int64_t seconds = options.number("seconds", 10);
  const auto due = static_cast<size_t>(rate * seconds);
  const int64_t first_us = wall_us() + (2 + seconds / 2) * 1'000'000;
  int64_t server_before = 0;
  int64_t cpu_before = 0;
  // Other rows have stored timers of lower numbers, which are still there.
  std::vector<int64_t> late_ns =
      store.take_when_due(2 * kNumbersOfProcess, due, first_us, 1'000'000 / rate, [&] {
        server_before = server_cpu_ns(options);
        cpu_before = process_cpu_ns();
      });
  Line line = stored_line(options, "lateness", RedisBare::kPeer);
  line.add("n", options.count("n", 0))
      .add("cpu_us", per_op(process_cpu_ns() - cpu_before, due) / kNsPerUs)
      .add("server_us", per_op(server_cpu_ns(options) - server_before, due) / kNsPerUs);
  add_quantiles(line, Quantiles(std::move(late_ns)));
  line.print();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::RedisBare store(options.text("socket", ""));
  if (options.text("row", "") == "lateness") {
    bench::measure_lateness(store, options);
  } else {
    bench::run_store_row(store, options);
  }
  return 0;
}

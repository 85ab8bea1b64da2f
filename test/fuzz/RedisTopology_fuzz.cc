#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "Fuzzing.h"
#include "store/RedisGreeting.h"
#include "store/RedisRedirection.h"
#include "store/RedisSlots.h"
#include "store/RedisStoreServer.h"
#include "store/RedisStoreTopology.h"
#include "store/RedisSubscription.h"
#include "store/RedisUrl.h"
#include "workflow/RedisMessage.h"
#include "workflow/WFRedisSubscriber.h"
#include "workflow/WFTaskError.h"

// Whatever a Redis says about itself and about others: the places that it names can be connected
// to, and are those that it has named. A login succeeds only if the server has said so. The replies
// to a greeting, and those of a subscription, mean the same wherever the bytes are cut.

using fuzzing::Cuts;
using fuzzing::require;
using protocol::RedisResponse;
using protocol::RedisValue;
using workflow::RedisGreeting;
using workflow::RedisRedirection;
using workflow::RedisSlots;
using workflow::RedisStoreError;
using workflow::RedisStoreTopology;
using workflow::RedisSubscription;
using workflow::RedisUrl;

namespace {

// The host that has replied.
const std::string kFrom = "10.0.0.1";
constexpr size_t kLongestReply = size_t{64} * 1024;

struct Outcome {
  int result = 0;
  int error = 0;
  size_t consumed = 0;
  std::vector<std::string> replies;

  bool operator==(const Outcome&) const = default;
};

// The values in the bytes, up to what is none, and where each of them ends.
struct Values {
  std::vector<RedisValue> values;
  std::vector<size_t> ends;
  bool goes_on = false;  // the bytes end between two values, or in the middle of one
};

Values read_values(std::string_view bytes) {
  Values all;
  size_t at = 0;
  for (;;) {
    RedisResponse response;
    response.set_size_limit(kLongestReply);
    size_t size = bytes.size() - at;
    const int result = response.append(bytes.data() + at, &size);
    if (result <= 0) {
      all.goes_on = result == 0;
      return all;
    }
    at += size;
    all.values.push_back(*response.result());
    all.ends.push_back(at);
    if (at == bytes.size()) {
      all.goes_on = true;
      return all;
    }
  }
}

// --- places ---

void check_place(const RedisUrl::Server& server) {
  require(!server.host.empty() && server.port != 0 && server.host != "?");
  const workflow::ClientTarget target = RedisUrl().target_of(server);
  require(target.error == 0 && target.host == server.host && target.port == server.port);
}

void check_redirection(const std::string& text) {
  const auto redirection = RedisRedirection::parse(text, kFrom);
  const auto nowhere = RedisRedirection::parse(text, "");
  if (!redirection) {
    require(!nowhere);
    return;
  }
  check_place(redirection->server);
  require(text.starts_with(redirection->asks ? "ASK " : "MOVED "));
  // What counts is named in the text, unless it is the host that has replied.
  const std::string port = ":" + std::to_string(redirection->server.port);
  require(text.find(nowhere ? redirection->server.host : " :") != std::string::npos);
  require(!nowhere || nowhere->server == redirection->server);
  const auto again = RedisRedirection::parse(
      (redirection->asks ? "ASK 1 " : "MOVED 1 ") + redirection->server.host + port, "other");
  require(again && again->server == redirection->server && again->asks == redirection->asks);
}

void check_error(const std::string& text) {
  const RedisStoreError error = RedisStoreError::of(text);
  require(error.error != 0);
  // A server that sends the command elsewhere has not executed it.
  if (RedisRedirection::parse(text, kFrom)) require(error.error == EAGAIN && !error.in_doubt);
}

// --- the slots of a Cluster ---

// One line of the reply, or nothing if it makes no sense.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  RedisUrl::Server master;  // without a host if the node does not know it

  static std::optional<Range> of(const RedisValue& value) {
    if (value.arr_size() < 3 || value[2].arr_size() < 2) return std::nullopt;
    const RedisValue& port = value[2][1];
    if (!value[0].is_int() || !value[1].is_int() || !port.is_int()) return std::nullopt;
    Range range{value[0].int_value(), value[1].int_value(), {value[2][0].string_value(), 0}};
    if (range.first < 0 || range.first > range.last || range.last > 16383) return std::nullopt;
    if (port.int_value() < 1 || port.int_value() > 65535) return std::nullopt;
    range.master.port = static_cast<unsigned short>(port.int_value());
    if (range.master.host.empty()) {
      range.master.host = kFrom;
    } else if (range.master.host == "?") {
      range.master.host.clear();
    }
    return range;
  }
};

// The last range that contains the slot and whose master is known says who that is.
void check_owner(const RedisSlots& slots, const std::vector<Range>& ranges, int64_t slot) {
  if (slot < 0 || slot >= int64_t{RedisSlots::kCount}) return;
  const int owner = slots.owners[static_cast<size_t>(slot)];
  const auto range = std::find_if(ranges.rbegin(), ranges.rend(), [slot](const Range& one) {
    return one.first <= slot && slot <= one.last && !one.master.host.empty();
  });
  require((owner == -1) == (range == ranges.rend()));
  if (owner != -1) require(slots.masters[static_cast<size_t>(owner)] == range->master);
}

void check_slots(const RedisValue& value) {
  RedisSlots slots;
  slots.masters.push_back({"earlier", 1});
  const bool good = RedisSlots::parse(value, kFrom, &slots);
  bool expected = value.is_array();
  std::vector<Range> ranges;
  int64_t covered = 0;
  for (size_t i = 0; i < value.arr_size(); ++i) {
    const auto range = Range::of(value[i]);
    expected = expected && range;
    if (!range) continue;
    ranges.push_back(*range);
    covered += range->last - range->first + 1;
  }
  expected = expected && covered <= int64_t{RedisSlots::kCount};
  require(good == expected);
  if (!good) return;
  require(slots.owners.size() == RedisSlots::kCount);
  require(slots.ids.empty() || slots.ids.size() == slots.masters.size());
  for (const int owner : slots.owners)
    require(owner >= -1 && owner < static_cast<int>(slots.masters.size()));
  for (size_t i = 0; i < slots.masters.size(); ++i) {
    check_place(slots.masters[i]);
    require(std::find(slots.masters.begin(), slots.masters.end(), slots.masters[i]) ==
            slots.masters.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (const Range& range : ranges) {
    for (const int64_t slot : {range.first - 1, range.first, range.last, range.last + 1})
      check_owner(slots, ranges, slot);
  }
}

// --- what a Sentinel says about a master ---

// The digits at the beginning of a text, which may have a sign; 0 if they are too many.
int64_t number_at_begin(const std::string& text) {
  const bool is_negative = text.starts_with('-');
  int64_t number = 0;
  for (size_t i = is_negative ? 1 : 0; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    const int64_t digit = is_negative ? '0' - text[i] : text[i] - '0';
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, digit, &number))
      return 0;
  }
  return number;
}

// Whether a name in the array has such a value. Names and values come in turn.
template <class MATCHES>
bool says(const RedisValue& array, const std::string& name, const MATCHES& matches) {
  for (size_t i = 0; i + 1 < array.arr_size(); i += 2) {
    if (array[i].string_value() == name && matches(array[i + 1].string_value())) return true;
  }
  return false;
}

void check_sentinel(const RedisValue& value) {
  constexpr uint64_t kEarlier = 7;
  RedisUrl::Server master;
  uint64_t epoch = kEarlier;
  const bool good = RedisStoreTopology::read_master(value, &master, &epoch);
  require(!good || (value.is_array() && !master.host.empty() && master.port != 0));
  if (!good) return;
  require(says(value, "ip", [&](const std::string& text) { return text == master.host; }));
  require(says(value, "port",
               [&](const std::string& text) { return number_at_begin(text) == master.port; }));
  require(epoch == kEarlier || says(value, "config-epoch", [](const auto&) { return true; }));
}

// --- what INFO says, and numbers ---

void check_info(const std::string& info) {
  for (const char* name : {"role", "run_id", "redis_version", "cluster_state"}) {
    std::string expected;
    const std::string beginning = std::string(name) + ":";
    std::string_view rest = info;
    while (expected.empty() && !rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (!line.starts_with(beginning)) continue;
      expected = line.substr(beginning.size(), line.find('\r') - beginning.size());
      break;
    }
    require(workflow::redis_info_field(info, name) == expected);
  }
}

void check_numbers(const RedisValue& array) {
  for (size_t i = 0; i < array.arr_size(); ++i)
    require(workflow::redis_store_number(array, i) == number_at_begin(array[i].string_value()));
  require(workflow::redis_store_number(array, array.arr_size()) == 0);
}

void check_value(const RedisValue& value) {
  check_numbers(value);
  check_sentinel(value);
  if (const std::string* text = value.string_view()) {
    check_redirection(*text);
    check_error(*text);
    check_info(*text);
  }
  for (size_t i = 0; i < value.arr_size(); ++i)
    check_value(value[i]);
}

// --- greetings ---

RedisUrl url_of(bool logs_in, unsigned db, bool asks_role) {
  RedisUrl url;
  url.server = {kFrom, 6379};
  url.logs_in = logs_in;
  url.password = logs_in ? "secret" : "";
  url.db = db;
  if (asks_role) {
    url.server = {};
    url.sentinels = {{kFrom, 26379}};
    url.master_name = "main";
  }
  return url;
}

Outcome greet(const RedisGreeting& greeting, std::string_view bytes, const Cuts& cuts) {
  const auto answer = greeting.new_answer();
  Outcome outcome;
  size_t consumed = 0;
  outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    return answer->append(piece, size);
  });
  if (outcome.result < 0) outcome.error = errno;
  if (outcome.result > 0) outcome.consumed = consumed;
  return outcome;
}

// Whether a server that has said so cannot tell just now.
bool is_transient(const RedisValue& role) {
  const std::string text = role.string_value();
  return role.is_error() && (text.starts_with("BUSY ") || text.starts_with("LOADING ") ||
                             text.starts_with("MASTERDOWN ") || text.starts_with("CLUSTERDOWN "));
}
// Whether a server that has said so is a master, or does not want to tell.
bool may_be_master(const RedisValue& role) {
  return role.is_error() ? !is_transient(role)
                         : role.arr_size() > 0 && role[0].string_value() == "master";
}

void check_greeting(const RedisUrl& url, std::string_view bytes, const Values& all) {
  const RedisGreeting greeting(url);
  const size_t logins = size_t{url.logs_in} + size_t{url.db != 0};
  const size_t wanted = logins + size_t{!url.sentinels.empty()};
  const Outcome outcome = greet(greeting, bytes, {});
  // The first reply that is not as it should be ends it.
  size_t good = 0;
  while (good < std::min(wanted, all.values.size()) &&
         (good < logins ? all.values[good].is_ok() : may_be_master(all.values[good])))
    ++good;
  if (good == wanted) {
    require(outcome.result == 1 && outcome.consumed == all.ends[wanted - 1]);
  } else if (good < all.values.size()) {
    const int error = outcome.error;
    require(outcome.result == -1);
    require(good < logins
                ? error == WFT_ERR_REDIS_ACCESS_DENIED || error == EAGAIN || error == ECONNREFUSED
                : error == (is_transient(all.values[good]) ? EAGAIN
                                                           : int{WFT_ERR_UPSTREAM_UNAVAILABLE}));
  } else {
    require(outcome.result == (all.goes_on ? 0 : -1));
    if (!all.goes_on) require(outcome.error == EBADMSG || outcome.error == EMSGSIZE);
  }
  // Which error it is may depend on the cuts if the bytes are no values.
  const bool is_refused = good == all.values.size() && outcome.result == -1;
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) {
    Outcome other = greet(greeting, bytes, cuts);
    if (is_refused && other.result == -1) other.error = outcome.error;
    require(other == outcome);
  });
}

// --- subscriptions ---

// The task has no exchange: it lends the subscription only what it is.
class Subscription {
 public:
  explicit Subscription(bool quits)
      : task_(WFRedisSubscriber().create_subscribe_task({"news"}, nullptr, nullptr)),
        subscription_(task_) {
    subscription_.set_size_limit(kLongestReply);
    if (!quits) return;
    require(subscription_.send("QUIT", {}) == 0);
    std::string bytes;
    subscription_.take_unsent(&bytes);
    require(bytes == "*1\r\n$4\r\nQUIT\r\n");
  }
  ~Subscription() { task_->dismiss(); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  Outcome receive(std::string_view bytes, const Cuts& cuts) {
    Outcome outcome;
    size_t consumed = 0;
    outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
      const int result = subscription_.append(piece, size);
      if (result == -1) require(errno == EBADMSG || errno == EMSGSIZE);
      // The replies are taken out as they come.
      RedisValue reply;
      while (subscription_.has_arrived()) {
        require(subscription_.next(&reply));
        outcome.replies.push_back(reply.debug_string());
      }
      require(!subscription_.next(&reply));
      return result;
    });
    if (outcome.result > 0) outcome.consumed = consumed;
    return outcome;
  }

 private:
  WFRedisSubscribeTask* const task_;
  RedisSubscription subscription_;
};

void check_subscription(bool quits, std::string_view bytes, const Values& all) {
  Outcome expected;
  for (size_t i = 0; i < all.values.size() && expected.result == 0; ++i) {
    const RedisValue& value = all.values[i];
    if (quits && value.get_type() == REDIS_REPLY_TYPE_STATUS && value.string_value() == "OK") {
      expected.result = 1;
      expected.consumed = all.ends[i];
    } else {
      expected.replies.push_back(value.debug_string());
    }
  }
  if (expected.result == 0 && !all.goes_on) expected.result = -1;
  require(Subscription(quits).receive(bytes, {}) == expected);
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) {
    require(Subscription(quits).receive(bytes, cuts) == expected);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Values all = read_values(bytes);
  if (!all.values.empty()) check_slots(all.values[0]);
  for (const RedisValue& value : all.values)
    check_value(value);
  check_greeting(url_of(true, 0, false), bytes, all);
  check_greeting(url_of(true, 3, true), bytes, all);
  check_greeting(url_of(false, 0, true), bytes, all);
  for (const bool quits : {false, true})
    check_subscription(quits, bytes, all);
  return 0;
}

#include "store/RedisStoreCodec.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "store/RedisStorePlace.h"

namespace workflow {

namespace {

// Lua counts exactly that far.
constexpr int64_t kMaxExact = int64_t{1} << 53;
constexpr int64_t kMaxLengthUs = int64_t{1} << 50;
// As in RedisStoreTimersScript.cc.
constexpr size_t kSmallPayload = 200;
constexpr size_t kMaxCount = 1'000'000;
// So many leases are extended by one script at most: it takes a server some 30 ms. After so many
// the script leaves the requests that follow to the next one (`looked_at` in RedisStoreScripts.cc).
constexpr size_t kMaxExtended = 2000;

std::string padded(uint64_t number, size_t digits = 19) {
  const std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}
// Times before 1970 count as 1970.
std::string time_text(int64_t us) {
  return padded(static_cast<uint64_t>(std::max<int64_t>(us, 0)));
}
std::string length_text(int64_t us) {
  return std::to_string(std::clamp<int64_t>(us, 0, kMaxLengthUs));
}
std::string count_text(size_t count) {
  return std::to_string(std::min(count, kMaxCount));
}

void append_big_endian(std::string* packed, size_t number, size_t bytes) {
  for (size_t i = bytes; i > 0; i--) {
    packed->push_back(static_cast<char>(number >> (8 * (i - 1)) & 0xff));
  }
}

// In MessagePack.
void append_packed(std::string* packed, std::string_view text) {
  if (text.size() < 32) {
    packed->push_back(static_cast<char>(0xa0 | text.size()));
  } else if (text.size() < 256) {
    packed->push_back('\xd9');
    append_big_endian(packed, text.size(), 1);
  } else if (text.size() < 65536) {
    packed->push_back('\xda');
    append_big_endian(packed, text.size(), 2);
  } else {
    packed->push_back('\xdb');
    append_big_endian(packed, text.size(), 4);
  }
  packed->append(text);
}

void append_packed(std::string* packed, uint64_t number) {
  packed->push_back('\xcf');
  append_big_endian(packed, number, 8);
}

// A timer that waits for its first run, as the scripts keep it.
std::string packed_timer(const StoredSpec& spec, int64_t due_us) {
  std::string packed;
  packed.reserve(spec.name.size() + spec.kind.size() + spec.payload.size() + 32);
  append_packed(&packed, spec.name);
  append_packed(&packed, spec.kind);
  append_packed(&packed, spec.payload);
  if (due_us < kMaxExact) {
    append_packed(&packed, static_cast<uint64_t>(std::max<int64_t>(due_us, 0)));
  } else {
    append_packed(&packed, time_text(due_us));
  }
  packed.push_back('\xc2');  // false: it wakes when it is due
  return packed;
}

class Parts {
 public:
  Parts(const StoreRequest& request, size_t shards, uint64_t session, bool peek)
      : request_(request), shards_(shards), session_(session), peek_(peek) {}

  std::vector<RedisStorePart> operator()(const ScheduleRequest& what) {
    constexpr std::array<const char*, 3> kPolicies = {"", "replace", "keep"};
    static_assert(WF_TIMER_APPEND == 0 && WF_TIMER_REPLACE == 1 && WF_TIMER_KEEP == 2);
    const StoredSpec& spec = what.spec;
    std::vector<std::string> arguments = {spec.name, spec.kind, time_text(what.due_us)};
    const bool is_usual = what.policy == WF_TIMER_APPEND && spec.repeat.empty() &&
                          spec.skip_after_us == -1 && spec.payload.size() <= kSmallPayload;
    if (is_usual) {
      arguments.push_back(packed_timer(spec, what.due_us));
    } else {
      arguments.push_back(spec.payload);
      arguments.emplace_back(kPolicies.at(static_cast<size_t>(what.policy)));
      arguments.push_back(spec.repeat);
      arguments.push_back(std::to_string(spec.skip_after_us));
    }
    return one(spec.name, 'S', with_id(std::move(arguments), 7));
  }
  std::vector<RedisStorePart> operator()(const CancelRequest& what) {
    return one(what.name, 'C', with_id({what.name, most_text(what.max)}, 2));
  }
  std::vector<RedisStorePart> operator()(const RescheduleRequest& what) {
    return one(what.name, 'R',
               with_id({what.name, most_text(what.max), time_text(what.due_us),
                        what.changes_repeat ? "1" : "", what.repeat},
                       5));
  }
  std::vector<RedisStorePart> operator()(const FailedRequest& what) {
    return one(what.name, 'F', with_id({what.name, what.remove ? "1" : ""}, 2));
  }
  std::vector<RedisStorePart> operator()(const ClaimRequest& what) {
    std::vector<std::string> arguments = {what.owner, length_text(what.lease_us),
                                          length_text(what.fresh_us), peek_ ? "1" : "0"};
    for (const ClaimRequest::Kind& kind : what.kinds) {
      arguments.push_back(kind.name);
      arguments.push_back(count_text(kind.max));
      arguments.push_back(count_text(kind.max_overdue));
    }
    return all('T', arguments);
  }
  std::vector<RedisStorePart> operator()(const FinishRequest& what) {
    constexpr std::array<const char*, 4> kHows = {"done", "missed", "retry", "failed"};
    std::vector<std::string> arguments = {padded(what.run.timer / shards_), fence_text(what.run)};
    if (what.how != FinishRequest::How::kDone || what.next_us != kNeverUs) {
      arguments.emplace_back(kHows.at(static_cast<size_t>(what.how)));
      arguments.push_back(time_text(what.next_us));
      arguments.push_back(what.reason);
    }
    return {{what.run.timer % shards_, 'E', std::move(arguments), {}}};
  }
  std::vector<RedisStorePart> operator()(const ExtendRequest& what) {
    std::vector<RedisStorePart> parts;
    for (RedisStorePart& part : all('X', {length_text(what.lease_us)})) {
      for (const RunId& run : what.runs) {
        if (run.timer % shards_ == part.shard) {
          if (part.ends_script()) {
            parts.push_back(part);
            part.arguments.resize(1);
          }
          part.arguments.push_back(padded(run.timer / shards_));
          part.arguments.push_back(fence_text(run));
        }
      }
      if (part.arguments.size() > 1) {
        parts.push_back(std::move(part));
      }
    }
    return parts;
  }
  // The shard of the asked request is not known. Each one decides for itself, so that the id is
  // used up wherever the request may arrive.
  std::vector<RedisStorePart> operator()(const AskRequest& what) {
    return all('A', {padded(what.asked.number, 20), redis_store_session(what.asked.session)});
  }
  std::vector<RedisStorePart> operator()(const CountRequest& what) {
    return all('N', {what.prefix});
  }
  std::vector<RedisStorePart> operator()(const ListRequest& what) {
    const bool follows = what.prefix <= what.after_name;
    std::vector<RedisStorePart> parts =
        all('L', {what.failed_only ? "failed" : "names", what.prefix, follows ? "1" : "0",
                  what.after_name, "", count_text(what.max)});
    for (RedisStorePart& part : parts) {
      // The last number of the shard that is not after the place.
      const uint64_t place = what.after_timer;
      part.arguments[4] = padded(place < part.shard ? 0 : (place - part.shard) / shards_);
    }
    return parts;
  }
  std::vector<RedisStorePart> operator()(const LookRequest& what) {
    std::vector<std::string> arguments = {length_text(what.overdue_us)};
    arguments.insert(arguments.end(), what.handled.begin(), what.handled.end());
    return all('K', arguments);
  }

 private:
  std::vector<RedisStorePart> one(const std::string& name, char letter,
                                  std::vector<std::string> arguments) const {
    return {{redis_store_shard(name, shards_), letter, std::move(arguments), {}}};
  }
  std::vector<RedisStorePart> all(char letter, const std::vector<std::string>& arguments) const {
    std::vector<RedisStorePart> parts;
    for (size_t shard = 0; shard < shards_; shard++) {
      parts.push_back({shard, letter, arguments, {}});
    }
    return parts;
  }
  // The number comes first. The session comes behind as many arguments, unless it is the one that
  // asks.
  std::vector<std::string> with_id(std::vector<std::string> arguments, size_t count) const {
    const WFStoreRequestId& id = request_.id;
    std::vector<std::string> all = {id.number == 0 ? "" : padded(id.number, 20)};
    all.insert(all.end(), std::make_move_iterator(arguments.begin()),
               std::make_move_iterator(arguments.end()));
    if (id.number != 0 && id.session != session_) {
      all.resize(count + 1);
      all.push_back(redis_store_session(id.session));
    }
    return all;
  }
  // Empty for all of them.
  static std::string most_text(size_t most) { return most < kMaxCount ? std::to_string(most) : ""; }
  // Empty if no timer can have that fence.
  std::string fence_text(const RunId& run) const {
    return run.fence % shards_ == run.timer % shards_ ? padded(run.fence / shards_) : "";
  }

  const StoreRequest& request_;
  const size_t shards_;
  const uint64_t session_;
  const bool peek_;
};

}  // namespace

std::string redis_store_session(uint64_t session) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < 16; i++) {
    text[15 - i] = kDigits[session >> (4 * i) & 15];
  }
  return text;
}

size_t RedisStorePart::bytes() const {
  size_t bytes = 64;
  for (const std::string& argument : arguments) {
    bytes += argument.size() + 16;
  }
  return bytes;
}

bool RedisStorePart::ends_script() const {
  return letter == 'X' && arguments.size() > 2 * kMaxExtended;
}

std::vector<RedisStorePart> redis_store_parts(const StoreRequest& request, size_t shards,
                                              uint64_t session, bool peek) {
  return std::visit(Parts(request, shards, session, peek), request.what);
}

std::string RedisStorePart::packed() const {
  std::string packed;
  packed.reserve(bytes());
  append_packed(&packed, {&letter, 1});
  // These may have more than a function of Lua can take.
  if (letter == 'T' || letter == 'X' || letter == 'K') {
    packed.push_back('\xdd');
    append_big_endian(&packed, arguments.size(), 4);
  }
  for (const std::string& argument : arguments) {
    append_packed(&packed, argument);
  }
  return packed;
}

void RedisStorePart::look_ahead(std::string* numbers, std::string* names) const {
  if (letter == 'E') {
    append_packed(numbers, arguments.at(0));
  } else if (letter == 'C' || letter == 'R') {
    append_packed(names, arguments.at(1));
  }
}

}  // namespace workflow

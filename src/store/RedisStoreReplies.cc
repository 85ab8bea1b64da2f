#include "store/RedisStoreReplies.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "store/StoreTime.h"
#include "workflow/RedisMessage.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

using protocol::RedisValue;

// Reads the elements of an array, one after the other. What is not there makes it bad.
class Elements {
 public:
  Elements(const RedisValue& value, size_t shard, size_t shards)
      : value_(value), shard_(shard), shards_(shards), good_(value.is_array()) {}

  // Whether a script can have counted so far, or given out that number.
  static bool is_count(int64_t number) { return number >= 0 && number <= kLuaCountsTo; }

  bool good() const { return good_; }
  bool more() const { return good_ && next_ < value_.arr_size(); }

  const RedisValue& value() {
    static const RedisValue& nothing = *new RedisValue;
    good_ = more();
    return good_ ? value_.arr_at(next_++) : nothing;
  }
  std::string text() {
    const RedisValue& text = value();
    good_ = good_ && text.is_string();
    return text.string_value();
  }
  uint64_t count() {
    const RedisValue& number = value();
    good_ = good_ && number.is_int() && is_count(number.int_value());
    return static_cast<uint64_t>(number.int_value());
  }
  unsigned attempts() {
    const uint64_t number = count();
    good_ = good_ && number <= std::numeric_limits<unsigned>::max();
    return static_cast<unsigned>(number);
  }
  // As an integer or in decimal digits; an empty text is 0. Times and lengths of time are never
  // negative. A number below `least` is bad, and then this returns 0.
  int64_t number(int64_t least = 0) {
    const RedisValue& value = this->value();
    int64_t number = value.int_value();
    if (!value.is_int()) {
      good_ = good_ && value.is_string();
      const std::string digits = value.string_value();
      const char* const digits_end = digits.data() + digits.size();
      const auto [end, error] = std::from_chars(digits.data(), digits_end, number);
      good_ = good_ && (digits.empty() || (error == std::errc() && end == digits_end));
    }
    good_ = good_ && number >= least;
    return good_ ? number : 0;
  }
  // The number of a timer or a fence, as it is outside; 0 if there is none.
  uint64_t global() {
    const int64_t number = this->number();
    good_ = good_ && is_count(number);
    return global(number);
  }
  uint64_t global(int64_t number) const {
    return number == 0 ? 0 : static_cast<uint64_t>(number) * shards_ + shard_;
  }
  Elements array() { return of(value()); }
  Elements of(const RedisValue& value) const { return {value, shard_, shards_}; }

 private:
  const RedisValue& value_;
  const size_t shard_;
  const size_t shards_;
  size_t next_ = 0;
  bool good_;
};

template <class ENUM>
struct Word {
  std::string_view word;
  ENUM value;
};

constexpr Word<WFStoreVerdict> kVerdicts[] = {
    {"won", WFStoreVerdict::kWon},         {"won_after", WFStoreVerdict::kWonAfter},
    {"running", WFStoreVerdict::kRunning}, {"after_run", WFStoreVerdict::kAfterRun},
    {"done", WFStoreVerdict::kDone},       {"unknown", WFStoreVerdict::kUnknown},
};
constexpr Word<WFStoreOutcome> kOutcomes[] = {
    {"", WFStoreOutcome::kNone},
    {"done", WFStoreOutcome::kDone},
    {"cancelled", WFStoreOutcome::kCancelled},
    {"missed", WFStoreOutcome::kMissed},
    {"failed", WFStoreOutcome::kFailed},
};
constexpr Word<WFStoreStage> kStages[] = {
    {"waiting", WFStoreStage::kWaiting},
    {"running", WFStoreStage::kRunning},
    {"blocked", WFStoreStage::kBlocked},
    {"failed", WFStoreStage::kFailed},
};

template <class ENUM, size_t N>
bool read_word(const Word<ENUM> (&words)[N], const std::string& text, ENUM* value) {
  for (const Word<ENUM>& word : words) {
    if (word.word == text) {
      *value = word.value;
      return true;
    }
  }
  return false;
}

bool read_failure(const std::string& word, StoreFailure* failure) {
  if (word.empty()) return true;
  if (word == "exists") {
    *failure = {EEXIST, "a timer of that name exists", false};
  } else if (word == "many") {
    *failure = {E2BIG, "the name has more than 20000 timers: take at most 20000 with one request",
                false};
  } else if (word == "full") {
    *failure = {ENOSPC, "the memory of the server is full (maxmemory): the timer is not stored",
                false};
  } else if (word == "used") {
    *failure = {ECANCELED, "the request was asked for before it arrived", false};
  } else if (word == "another") {
    *failure = {EINVAL, "the id belongs to a request of another kind", false};
  } else {
    return false;
  }
  return true;
}

// `around` is what the value is an element of. A number: the timer was won before its first run.
bool read_answer(const Elements& around, const RedisValue& value, WFStoreAnswer* answer) {
  if (value.is_int()) {
    answer->verdict = WFStoreVerdict::kWon;
    answer->timer = around.global(value.int_value());
    return value.int_value() > 0 && Elements::is_count(value.int_value());
  }
  Elements elements = around.of(value);
  bool good = read_word(kVerdicts, elements.text(), &answer->verdict);
  answer->timer = elements.global();
  answer->owner = elements.text();
  answer->fence = elements.global();
  answer->lease_left = std::chrono::microseconds(elements.number());
  answer->attempts = elements.attempts();
  good = read_word(kOutcomes, elements.text(), &answer->outcome) && good;
  answer->when = time_of_us(elements.number());
  return good && elements.good();
}

// What a user's request with that letter was answered. `around` is what the value is an element of.
bool read_result(const Elements& around, char letter, const RedisValue& value,
                 StoreFailure* failure, WFStoreResult* result) {
  if (value.is_int()) {
    if (letter == 'F') {
      result->count = static_cast<size_t>(value.int_value());
    } else if (letter == 'S') {
      result->timer = around.global(value.int_value());
    } else {
      return read_answer(around, value, &result->answers.emplace_back());
    }
    return Elements::is_count(value.int_value());
  }
  Elements elements = around.of(value);
  const bool good = read_failure(elements.text(), failure);
  result->timer = elements.global();
  result->count = elements.count();
  while (elements.more()) {
    if (!read_answer(elements, elements.value(), &result->answers.emplace_back())) return false;
  }
  return good && elements.good();
}

class Answers {
 public:
  Answers(const std::vector<RedisStorePart>& parts, size_t shards, StoreFailure* failure)
      : parts_(parts), shards_(shards), failure_(failure) {}

  bool operator()(ScheduleRequest& what) {
    WFStoreResult result;
    const bool good = read_own_result(&result);
    what.timer = result.timer;
    what.answers = std::move(result.answers);
    return good;
  }
  bool operator()(CancelRequest& what) { return read_answers(&what.answers); }
  bool operator()(RescheduleRequest& what) { return read_answers(&what.answers); }
  bool operator()(FailedRequest& what) {
    WFStoreResult result;
    const bool good = read_own_result(&result);
    what.count = result.count;
    return good;
  }
  bool operator()(ClaimRequest& what) {
    for (const RedisStorePart& part : parts_) {
      Elements reply = elements(part);
      // On all servers timers are due by the time of the store, and so is this.
      what.next_us = std::min(what.next_us, reply.number());
      what.more = reply.count() != 0 || what.more;
      Elements claimed = reply.array();
      reply.value();  // for redis_store_share()
      reply.value();
      const int64_t lease_end_us = in_store_time(reply.number(), part.ahead_us);
      what.again = reply.count() != 0 || what.again;
      while (claimed.more()) {
        ClaimRequest::Claimed& one = what.claimed.emplace_back();
        if (!read_claimed(claimed.array(), &one) || !asks_for(what, one.spec.kind)) return false;
        one.lease_end_us = lease_end_us;
      }
      if (!reply.good() || !claimed.good()) return false;
    }
    return true;
  }
  bool operator()(FinishRequest& what) {
    const RedisValue& reply = parts_.at(0).reply;
    what.accepted = reply.int_value() != 0;
    return reply.is_int();
  }
  bool operator()(ExtendRequest& what) {
    std::vector<Elements> replies;
    for (const RedisStorePart& part : parts_) {
      replies.push_back(elements(part));
    }
    // Each shard has answered about its runs in their order, in one part or several.
    std::vector<size_t> part_of(shards_);
    for (const RunId& run : what.runs) {
      const size_t shard = run.timer % shards_;
      size_t& part = part_of[shard];
      while (part < parts_.size() && (parts_[part].shard != shard || !replies[part].more())) {
        part++;
      }
      if (part == parts_.size()) return false;
      Elements reply = replies[part].array();
      ExtendRequest::Extended& extended = what.extended.emplace_back();
      extended.live = reply.count() != 0;
      extended.cancelled = reply.count() != 0;
      extended.lease_end_us = in_store_time(reply.number(), parts_[part].ahead_us);
      if (!reply.good()) return false;
    }
    return true;
  }
  bool operator()(AskRequest& what) {
    what.result = WFStoreResult();
    what.result.request = what.asked;
    bool forgotten = false;
    for (const RedisStorePart& part : parts_) {
      Elements reply = elements(part);
      const std::string word = reply.text();
      if (word == "yes") {
        StoreFailure failure;
        const std::string letter = reply.text();
        if (letter.size() != 1 ||
            !read_result(reply, letter[0], reply.value(), &failure, &what.result) ||
            !reply.good()) {
          return false;
        }
        what.found = true;
        what.result.error = failure.error;
        what.result.message = failure.message;
        what.result.state = failure.error != 0 ? WFT_STATE_SYS_ERROR : WFT_STATE_SUCCESS;
        return true;
      }
      if (word != "no" && word != "forgotten") return false;
      forgotten = forgotten || word == "forgotten";
    }
    if (forgotten) {
      *failure_ = {ENODATA, "the store does not remember requests from so long ago", false};
    }
    return true;
  }
  bool operator()(CountRequest& what) {
    return std::all_of(parts_.begin(), parts_.end(), [&what](const RedisStorePart& part) {
      what.count += static_cast<uint64_t>(part.reply.int_value());
      return part.reply.is_int() && Elements::is_count(part.reply.int_value());
    });
  }
  bool operator()(ListRequest& what) {
    // A shard whose reply ends early may have more before what others have said.
    std::optional<std::pair<std::string, uint64_t>> last;
    for (const RedisStorePart& part : parts_) {
      Elements reply = elements(part);
      const bool ends_early = reply.count() != 0;
      const size_t before = what.timers.size();
      while (reply.more()) {
        if (!read_info(reply.array(), &what.timers.emplace_back())) return false;
      }
      if (!reply.good() || (ends_early && what.timers.size() == before && what.max > 0)) {
        return false;
      }
      what.more = what.more || ends_early;
      if (ends_early && what.max > 0) {
        const std::pair place(what.timers.back().name, what.timers.back().timer);
        last = last ? std::min(*last, place) : place;
      }
    }
    std::sort(what.timers.begin(), what.timers.end(), comes_before);
    if (last) {
      const auto past = std::find_if(what.timers.begin(), what.timers.end(), [&](const auto& info) {
        return std::pair(info.name, info.timer) > *last;
      });
      what.timers.erase(past, what.timers.end());
    }
    what.more = what.more || last.has_value() || what.timers.size() > what.max;
    what.timers.resize(std::min(what.timers.size(), what.max));
    return true;
  }
  bool operator()(LookRequest& what) {
    for (const RedisStorePart& part : parts_) {
      Elements reply = elements(part);
      what.stored += reply.count();
      what.due += reply.count();
      what.overdue += reply.count();
      what.unhandled += reply.count();
      what.leased += reply.count();
      what.failed_timers += reply.count();
      if (!reply.good()) return false;
    }
    return true;
  }

 private:
  Elements elements(const RedisStorePart& part) const { return {part.reply, part.shard, shards_}; }

  bool read_own_result(WFStoreResult* result) {
    const RedisStorePart& part = parts_.at(0);
    return read_result(elements(part), part.letter, part.reply, failure_, result);
  }

  bool read_answers(std::vector<WFStoreAnswer>* answers) {
    WFStoreResult result;
    const bool good = read_own_result(&result);
    *answers = std::move(result.answers);
    return good;
  }

  // The servers of a Cluster have clocks of their own. The time of the store is that of the
  // slowest.
  static int64_t in_store_time(int64_t server_us, int64_t ahead_us) {
    return server_us == kNeverUs ? kNeverUs : server_us - ahead_us;
  }

  // An engine has no handler for another kind.
  static bool asks_for(const ClaimRequest& claim, const std::string& kind) {
    return std::any_of(claim.kinds.begin(), claim.kinds.end(),
                       [&kind](const ClaimRequest::Kind& asked) { return asked.name == kind; });
  }

  static bool read_claimed(Elements elements, ClaimRequest::Claimed* claimed) {
    claimed->run.timer = elements.global();
    claimed->run.fence = elements.global();
    claimed->spec.name = elements.text();
    claimed->spec.kind = elements.text();
    claimed->spec.payload = elements.text();
    claimed->due_us = elements.number();
    claimed->wake_us = elements.number();
    claimed->attempts = 1;
    if (elements.more()) {
      claimed->attempts = elements.attempts();
      claimed->spec.repeat = elements.text();
      claimed->spec.skip_after_us = elements.number(std::numeric_limits<int64_t>::min());
    }
    return elements.good();
  }

  static bool read_info(Elements elements, WFStoreInfo* info) {
    info->timer = elements.global();
    info->name = elements.text();
    info->kind = elements.text();
    info->payload = elements.text();
    info->due = time_of_us(elements.number());
    const bool good = read_word(kStages, elements.text(), &info->stage);
    info->attempts = elements.attempts();
    info->owner = elements.text();
    info->reason = elements.text();
    return good && elements.good();
  }

  static bool comes_before(const WFStoreInfo& a, const WFStoreInfo& b) {
    const int order = a.name.compare(b.name);
    return order != 0 ? order < 0 : a.timer < b.timer;
  }

  const std::vector<RedisStorePart>& parts_;
  const size_t shards_;
  StoreFailure* const failure_;
};

// A timer that could be claimed: since when it is due, and its shard.
using Due = std::pair<int64_t, size_t>;

// Counts for each shard those of the `max` earliest that are its own.
std::vector<size_t> shares_of(std::vector<Due> due, size_t max, size_t shards) {
  std::sort(due.begin(), due.end());
  due.resize(std::min(due.size(), max));
  std::vector<size_t> shares(shards);
  for (const Due& one : due) {
    shares[one.second]++;
  }
  return shares;
}

}  // namespace

bool redis_store_answer(const std::vector<RedisStorePart>& parts, size_t shards,
                        StoreRequest* request) {
  return std::visit(Answers(parts, shards, &request->failure), request->what);
}

bool redis_store_share(const ClaimRequest& claim, const std::vector<RedisStorePart>& peeked,
                       std::vector<ClaimRequest>* shares) {
  const size_t shards = peeked.size();
  std::vector<std::vector<Due>> fresh(claim.kinds.size());
  std::vector<std::vector<Due>> overdue(claim.kinds.size());
  for (const RedisStorePart& part : peeked) {
    Elements reply(part.reply, part.shard, shards);
    reply.number();
    reply.count();
    reply.value();
    Elements seen = reply.array();
    for (size_t kind = 0; kind < claim.kinds.size(); kind++) {
      for (std::vector<Due>* due : {&fresh[kind], &overdue[kind]}) {
        Elements times = seen.array();
        while (times.more()) {
          due->emplace_back(times.number(), part.shard);
        }
        if (!times.good()) return false;
      }
    }
  }
  shares->assign(shards, claim);
  for (size_t kind = 0; kind < claim.kinds.size(); kind++) {
    const ClaimRequest::Kind& wanted = claim.kinds[kind];
    const std::vector<size_t> first = shares_of(fresh[kind], wanted.max, shards);
    const size_t left = wanted.max - std::min(wanted.max, fresh[kind].size());
    const std::vector<size_t> then =
        shares_of(overdue[kind], std::min(left, wanted.max_overdue), shards);
    for (size_t shard = 0; shard < shards; shard++) {
      (*shares)[shard].kinds[kind].max = first[shard] + then[shard];
      (*shares)[shard].kinds[kind].max_overdue = then[shard];
    }
  }
  return true;
}

}  // namespace workflow

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "Fuzzing.h"
#include "store/RedisStoreCodec.h"
#include "store/RedisStoreReplies.h"
#include "store/StoreRepeat.h"
#include "store/StoreRequest.h"
#include "store/StoreTime.h"
#include "workflow/RedisMessage.h"
#include "workflow/WFTaskState.h"

// Whatever a Redis answers to the scripts of a store: the reply is refused, or the answer makes
// sense: it is about what was asked, and nothing in it could make an engine stumble.
//
// The first byte chooses the request, the second one how many shards there are and how much their
// clocks differ, the third one what the request asks for. The rest are the replies to its parts in
// turn. A part for which there is no reply gets nil.

using fuzzing::require;
using protocol::RedisResponse;
using protocol::RedisValue;
using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::ClaimRequest;
using workflow::CountRequest;
using workflow::ExtendRequest;
using workflow::FailedRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::ListRequest;
using workflow::LookRequest;
using workflow::RedisStorePart;
using workflow::RescheduleRequest;
using workflow::ScheduleRequest;
using workflow::StoreFailure;
using workflow::StoreRepeat;
using workflow::StoreRequest;

namespace {

constexpr uint64_t kSession = 7;
constexpr size_t kShards[] = {1, 2, 3, 16};
constexpr uint64_t kMost = uint64_t{1} << 53;  // Lua counts exactly that far
constexpr int64_t kHourUs = 3'600'000'000;

// --- what is asked ---

struct Asked {
  StoreRequest request;
  size_t shards = 1;
  int64_t ahead_us = 0;  // of the clock of each shard but the first
};

StoreRequest with_id(decltype(StoreRequest::what) what, uint8_t detail) {
  return {std::move(what), {(detail & 1) != 0 ? kSession : kSession + 1, 25}, {}};
}

ClaimRequest claim_of(uint8_t detail) {
  ClaimRequest claim;
  claim.owner = "host/1";
  claim.lease_us = 30'000'000;
  claim.fresh_us = 1'000'000;
  claim.kinds = {{"remind", detail & 7U, detail >> 3 & 7U}, {"mail", detail >> 6 & 3U, 1}};
  return claim;
}

StoreRequest request_of(uint8_t chosen, uint8_t detail) {
  const auto max = (detail & 2) != 0 ? SIZE_MAX : size_t{3};
  switch (chosen % 11) {
    case 0: {
      ScheduleRequest schedule;
      schedule.spec = {"timer", "remind", "payload", "", -1};
      schedule.spec.payload.resize((detail & 4) != 0 ? 300 : 7, 'x');
      schedule.due_us = kHourUs;
      schedule.policy = static_cast<WFTimerPolicy>(detail / 8 % 3);
      return with_id(schedule, detail);
    }
    case 1:
      return with_id(CancelRequest{"timer", max, {}}, detail);
    case 2:
      return with_id(RescheduleRequest{"timer", max, kHourUs, (detail & 4) != 0, "", {}}, detail);
    case 3:
      return with_id(FailedRequest{"timer", (detail & 4) != 0, 0}, detail);
    case 4:
      return {claim_of(detail), {}, {}};
    case 5: {
      FinishRequest finish;
      finish.run = {detail, detail};
      finish.how = static_cast<FinishRequest::How>(detail & 3);
      return {finish, {}, {}};
    }
    case 6: {
      ExtendRequest extend;
      extend.lease_us = kHourUs;
      for (uint64_t i = 0; i < detail % 5U; ++i)
        extend.runs.push_back({10 + i * detail, 20 + i});
      return {extend, {}, {}};
    }
    case 7:
      return {AskRequest{{kSession, detail}, false, {}}, {}, {}};
    case 8:
      return {CountRequest{"t", 0}, {}, {}};
    case 9: {
      ListRequest list;
      list.prefix = "t";
      list.max = detail & 7;
      list.after_timer = detail >> 4;
      list.failed_only = (detail & 8) != 0;
      return {list, {}, {}};
    }
    default: {
      LookRequest look;
      look.handled = {"remind", "mail"};
      look.overdue_us = kHourUs;
      return {look, {}, {}};
    }
  }
}

// Gives out the replies in the bytes, one after the other.
class Replies {
 public:
  explicit Replies(std::string_view bytes) : rest_(bytes) {}

  RedisValue next() {
    RedisResponse response;
    size_t size = rest_.size();
    if (rest_.empty() || response.append(rest_.data(), &size) != 1) return RedisValue();
    rest_.remove_prefix(size);
    return *response.result();
  }
  void give_to(std::vector<RedisStorePart>& parts, int64_t ahead_us) {
    for (RedisStorePart& part : parts) {
      if (part.letter != ' ') part.reply = next();
      part.ahead_us = part.shard == 0 ? 0 : ahead_us;
    }
  }

 private:
  std::string_view rest_;
};

// No part is longer than it says, and each is for a shard that there is.
void check_parts(const std::vector<RedisStorePart>& parts, size_t shards) {
  for (const RedisStorePart& part : parts) {
    require(part.shard < shards);
    std::string numbers;
    std::string names;
    part.look_ahead(&numbers, &names);
    require(part.packed().size() <= part.bytes());
    require(numbers.size() + names.size() <= part.bytes());
  }
}

// --- what is answered ---

bool is_of_shard(uint64_t number, size_t shard, size_t shards) {
  return number == 0 || (number % shards == shard && number / shards <= kMost);
}

void check_line(const std::string& message) {
  require(!message.empty() && message.size() < 200);
  for (const char c : message)
    require(c >= ' ' && c <= '~');
}

void check_failure(const StoreFailure& failure) {
  require(!failure.in_doubt);
  if (failure.error == 0) {
    require(failure.message.empty());
    return;
  }
  check_line(failure.message);
  require(failure.error == EEXIST || failure.error == E2BIG || failure.error == ENOSPC ||
          failure.error == ECANCELED || failure.error == EINVAL);
}

// A date is not before 1970, so that lengths of time can be computed from it.
void check_date(std::chrono::system_clock::time_point date) {
  require(date >= std::chrono::system_clock::time_point() && workflow::us_of_time(date) >= 0);
}

void check_answers(const std::vector<WFStoreAnswer>& answers, size_t shard, size_t shards) {
  for (const WFStoreAnswer& answer : answers) {
    require(answer.verdict > WFStoreVerdict::kNone && answer.verdict < WFStoreVerdict::kInDoubt);
    require(answer.outcome >= WFStoreOutcome::kNone && answer.outcome <= WFStoreOutcome::kFailed);
    require(is_of_shard(answer.timer, shard, shards) && is_of_shard(answer.fence, shard, shards));
    require(answer.lease_left.count() >= 0);
    check_date(answer.when);
  }
}

// An engine that sees the text of a recurrence finds the date for which the timer runs.
void check_repeat(const ClaimRequest::Claimed& claimed, int64_t now_us) {
  // Those of cron expressions take long, and have a fuzzer of their own.
  if (!claimed.spec.repeat.starts_with("every")) return;
  const auto repeat = StoreRepeat::parse(claimed.spec.repeat);
  if (!repeat) return;
  const int64_t date_us = repeat->date_to_run_us(claimed.due_us, now_us);
  require(date_us == claimed.due_us || (date_us > claimed.due_us && date_us <= now_us));
}

// Checks an answer that was taken from these parts.
class Checks {
 public:
  Checks(const std::vector<RedisStorePart>& parts, size_t shards, const StoreFailure& failure)
      : parts_(parts), shards_(shards), failure_(failure) {}

  void operator()(const ScheduleRequest& what) const {
    check_failure(failure_);
    require(is_of_shard(what.timer, parts_.at(0).shard, shards_));
    check_user_answers(what.answers);
  }
  void operator()(const CancelRequest& what) const { check_user_answers(what.answers); }
  void operator()(const RescheduleRequest& what) const { check_user_answers(what.answers); }
  void operator()(const FailedRequest& what) const {
    check_failure(failure_);
    require(what.count <= kMost);
  }
  void operator()(const ClaimRequest& what) const {
    require(failure_.error == 0 && what.next_us >= 0);
    size_t claimed = 0;
    for (const RedisStorePart& part : parts_)
      claimed += part.reply[2].arr_size();
    require(what.claimed.size() == claimed);
    size_t next = 0;
    for (const RedisStorePart& part : parts_) {
      for (size_t i = 0; i < part.reply[2].arr_size(); ++i) {
        const RedisValue& said = part.reply[2][i];
        require(what.claimed[next].attempts == (said.arr_size() > 7 ? said[7].int_value() : 1));
        check_claimed(what, what.claimed[next++], part);
      }
    }
  }
  void operator()(const FinishRequest& what) const {
    require(failure_.error == 0 && parts_.size() == 1);
    require(what.accepted == (parts_[0].reply.int_value() != 0));
  }
  void operator()(const ExtendRequest& what) const {
    require(failure_.error == 0 && what.extended.size() == what.runs.size());
    for (const ExtendRequest::Extended& extended : what.extended)
      require(extended.lease_end_us >= -kHourUs);
  }
  void operator()(const AskRequest& what) const {
    const WFStoreResult& result = what.result;
    require(failure_.error == 0 || (failure_.error == ENODATA && !what.found));
    require(result.request == what.asked);
    require(what.found || (result.error == 0 && result.answers.empty() && result.timer == 0));
    require(result.state == (result.error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR));
    require(result.count <= kMost);
    check_failure({result.error, result.message, false});
    // The first shard that knows the request has answered.
    bool forgotten = false;
    for (const RedisStorePart& part : parts_) {
      forgotten = forgotten || part.reply[0].string_value() == "forgotten";
      if (part.reply[0].string_value() != "yes") continue;
      require(what.found && is_of_shard(result.timer, part.shard, shards_));
      check_answers(result.answers, part.shard, shards_);
      return;
    }
    require(!what.found && forgotten == (failure_.error == ENODATA));
  }
  void operator()(const CountRequest& what) const {
    require(failure_.error == 0 && what.count <= kMost * shards_);
    for (const RedisStorePart& part : parts_)
      require(what.count >= static_cast<uint64_t>(part.reply.int_value()));
  }
  void operator()(const ListRequest& what) const {
    require(failure_.error == 0 && what.timers.size() <= what.max);
    size_t found = 0;
    for (const RedisStorePart& part : parts_)
      found += part.reply.arr_size() - 1;
    // What is left out is left for the next list.
    require(what.timers.size() <= found && (what.more || what.timers.size() == found));
    for (size_t i = 0; i < what.timers.size(); ++i) {
      const WFStoreInfo& info = what.timers[i];
      require(info.timer / shards_ <= kMost);
      require(info.stage >= WFStoreStage::kWaiting && info.stage <= WFStoreStage::kFailed);
      check_date(info.due);
      if (i > 0) {
        const WFStoreInfo& before = what.timers[i - 1];
        require(std::tie(before.name, before.timer) <= std::tie(info.name, info.timer));
      }
    }
  }
  void operator()(const LookRequest& what) const {
    require(failure_.error == 0);
    for (const uint64_t count :
         {what.stored, what.due, what.overdue, what.unhandled, what.leased, what.failed_timers})
      require(count <= kMost * shards_);
  }

 private:
  void check_user_answers(const std::vector<WFStoreAnswer>& answers) const {
    check_failure(failure_);
    require(parts_.size() == 1);
    check_answers(answers, parts_[0].shard, shards_);
    require(answers.size() <= std::max<size_t>(parts_[0].reply.arr_size(), 1));
  }

  void check_claimed(const ClaimRequest& what, const ClaimRequest::Claimed& claimed,
                     const RedisStorePart& part) const {
    // An engine has handlers only for the kinds that it has asked for.
    require(std::any_of(what.kinds.begin(), what.kinds.end(),
                        [&claimed](const auto& kind) { return kind.name == claimed.spec.kind; }));
    require(is_of_shard(claimed.run.timer, part.shard, shards_));
    require(is_of_shard(claimed.run.fence, part.shard, shards_));
    require(claimed.due_us >= 0 && claimed.wake_us >= 0);
    require(claimed.lease_end_us >= -part.ahead_us);
    // The engine looks for the time at which the lease began.
    require(claimed.lease_end_us - what.lease_us - claimed.wake_us <= kNeverUs);
    check_date(workflow::time_of_us(claimed.due_us));
    if (claimed.lease_end_us > what.lease_us) {
      check_repeat(claimed, claimed.lease_end_us - what.lease_us);
    }
  }

  const std::vector<RedisStorePart>& parts_;
  const size_t shards_;
  const StoreFailure& failure_;
};

// --- claims of several shards ---

void check_shares(const ClaimRequest& claim, const std::vector<ClaimRequest>& shares,
                  const std::vector<RedisStorePart>& peeked) {
  require(shares.size() == peeked.size());
  for (size_t kind = 0; kind < claim.kinds.size(); ++kind) {
    const ClaimRequest::Kind& wanted = claim.kinds[kind];
    size_t max = 0;
    size_t max_overdue = 0;
    size_t fresh = 0;
    size_t overdue = 0;
    for (size_t shard = 0; shard < shares.size(); ++shard) {
      const ClaimRequest::Kind& share = shares[shard].kinds.at(kind);
      const RedisValue& seen = peeked[shard].reply[3];
      require(share.name == wanted.name && share.max_overdue <= share.max);
      // Nobody is asked for more than was seen there.
      const size_t its_fresh = seen[2 * kind].arr_size();
      const size_t its_overdue = seen[2 * kind + 1].arr_size();
      require(share.max_overdue <= its_overdue && share.max - share.max_overdue <= its_fresh);
      max += share.max;
      max_overdue += share.max_overdue;
      fresh += its_fresh;
      overdue += its_overdue;
    }
    // As many as possible, and the fresh ones first.
    const size_t expected_fresh = std::min(fresh, wanted.max);
    require(max - max_overdue == expected_fresh);
    require(max_overdue == std::min({overdue, wanted.max_overdue, wanted.max - expected_fresh}));
  }
}

// The parts of the claim that follows from what was seen, as a backend makes them. Returns false
// if the replies make no sense.
bool divide(const Asked& asked, Replies& replies, std::vector<RedisStorePart>* parts) {
  const auto& claim = std::get<ClaimRequest>(asked.request.what);
  std::vector<RedisStorePart> peeked =
      redis_store_parts(asked.request, asked.shards, kSession, true);
  check_parts(peeked, asked.shards);
  replies.give_to(peeked, asked.ahead_us);
  std::vector<ClaimRequest> shares;
  if (!redis_store_share(claim, peeked, &shares)) return false;
  check_shares(claim, shares, peeked);
  for (size_t shard = 0; shard < asked.shards; ++shard) {
    const auto& kinds = shares[shard].kinds;
    RedisStorePart& part = parts->emplace_back(std::move(peeked[shard]));
    part.letter = ' ';
    if (std::any_of(kinds.begin(), kinds.end(), [](const auto& kind) { return kind.max > 0; }))
      part = redis_store_parts(StoreRequest{shares[shard], {}, {}}, asked.shards, kSession)[shard];
  }
  return true;
}

void check(const Asked& asked, std::string_view bytes) {
  Replies replies(bytes);
  std::vector<RedisStorePart> parts;
  if (std::holds_alternative<ClaimRequest>(asked.request.what) && asked.shards > 1) {
    if (!divide(asked, replies, &parts)) return;
  } else {
    parts = redis_store_parts(asked.request, asked.shards, kSession);
  }
  check_parts(parts, asked.shards);
  replies.give_to(parts, asked.ahead_us);
  StoreRequest request = asked.request;
  const bool good = redis_store_answer(parts, asked.shards, &request);
  if (good) std::visit(Checks(parts, asked.shards, request.failure), request.what);
  // Nothing of an answer is left for the next attempt.
  clear_answer(request);
  require(redis_store_answer(parts, asked.shards, &request) == good);
  if (good) std::visit(Checks(parts, asked.shards, request.failure), request.what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  Asked asked;
  asked.request = request_of(data[0], data[2]);
  asked.shards = kShards[data[1] % std::size(kShards)];
  asked.ahead_us = data[1] / 4 * (kHourUs / 64);
  const std::string_view bytes(reinterpret_cast<const char*>(data + 3), size - 3);
  check(asked, bytes);
  for (size_t cut = 0; fuzzing::cut_everywhere && cut < bytes.size(); ++cut)
    check(asked, bytes.substr(0, cut));
  return 0;
}

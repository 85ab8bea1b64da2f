#include "store/RedisStoreBackend.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "store/RedisStoreReplies.h"
#include "store/RedisStoreScripts.h"
#include "store/RedisWire.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

bool starts_with_code(const std::string& text, std::string_view code) {
  return text.starts_with(code) && (text.size() == code.size() || text[code.size()] == ' ');
}

bool is_claim(const StoreRequest* request) {
  return std::holds_alternative<ClaimRequest>(request->what);
}
bool is_of_run(const StoreRequest* request) {
  return std::holds_alternative<FinishRequest>(request->what) ||
         std::holds_alternative<ExtendRequest>(request->what);
}
bool is_of_user(const StoreRequest* request) {
  return request->id.number != 0 || std::holds_alternative<AskRequest>(request->what);
}

// Whether a server may say that so many seconds have passed since 1970. Lua counts microseconds up
// to the year 2255.
bool is_time(int64_t seconds) {
  return seconds > 0 && seconds < kLuaCountsTo / kUsPerSec;
}

}  // namespace

std::unique_ptr<RedisStoreBackend> RedisStoreBackend::open(const std::string& url,
                                                           const StoreBackendOptions& options,
                                                           Clock* test_clock, int* error,
                                                           std::string* message) {
  if (VirtualScheduler::current() != nullptr) {
    *error = ENOTSUP;
    *message = "a simulation has no Redis";
    return nullptr;
  }
  RedisStorePlace place;
  *error = RedisStorePlace::parse(url, &place, message);
  if (*error != 0) return nullptr;
  std::unique_ptr<RedisStoreBackend> backend(
      new RedisStoreBackend(std::move(place), options, test_clock));
  *error = backend->connect(options.create, message);
  return *error == 0 ? std::move(backend) : nullptr;
}

RedisStoreBackend::RedisStoreBackend(RedisStorePlace place, const StoreBackendOptions& options,
                                     Clock* test_clock)
    : place_(std::move(place)),
      options_(options),
      test_clock_(test_clock),
      sender_(redis_store_session(options.session)),
      news_(place_.channel(), sender_, options.changed) {}

RedisStoreBackend::~RedisStoreBackend() {
  close();
}

void RedisStoreBackend::close() {
  news_.close();
  nodes_.close();
  // A text could need memory. See execute().
  why_closed_.error = ENOTCONN;
  why_closed_.message.clear();
}

int RedisStoreBackend::connect(bool create, std::string* message) {
  // What is known of it is kept by whatever fails.
  RedisStoreOpening opened = opened_;
  int error = nodes_.connect(message);
  if (error == 0) {
    error = opened.open(nodes_, place_, create, time_argument(),
                        redis_store_session(options_.session), options_.remembered, message);
  }
  if (error == 0) {
    error = refuse_broken_word(opened, message);
  }
  if (error == 0) {
    nodes_.set_shards(opened.shards);
    error = load_scripts(message);
  }
  // What was found may be that of a server that was replaced meanwhile.
  if (nodes_.was_silent() && !nodes_.is_still_right()) {
    *message = nodes_.why_not_right();
    error = EAGAIN;
  }
  if (error == 0) {
    opened_ = std::move(opened);
    receipt_ = nodes_.receipt(false);
    said_fsync_ = receipt_.level == WFStoreReceipt::kFsync;
    keep_news();
  }
  return error;
}

int RedisStoreBackend::refuse_broken_word(const RedisStoreOpening& opened, std::string* message) {
  if (!opened.has_lost || !said_fsync_ || place_.kind != RedisStorePlace::Kind::kServer) return 0;
  *message = nodes_.of_shard(0).link.name() +
             ": the server has lost requests that it had synced: open the store anew to go on";
  return EILSEQ;
}

int RedisStoreBackend::load_scripts(std::string* message) {
  std::string load;
  append_command(&load, {"SCRIPT", "LOAD", redis_store_script()});
  std::string load_full;
  append_command(&load_full, {"SCRIPT", "LOAD", redis_store_script_when_full()});
  std::string time;
  append_command(&time, {"TIME"});
  for (const auto& node : nodes_.all()) {
    const auto replies = node->link.ask(std::vector<std::string>{load, load_full, time});
    for (const RedisStoreLink::Reply& reply : replies) {
      if (const int error = redis_store_failure(node->link, reply, message)) return error;
    }
    script_sha_ = replies[0].value.string_value();
    full_script_sha_ = replies[1].value.string_value();
    const int64_t seconds = redis_store_number(replies[2].value, 0);
    const int64_t rest_us = redis_store_number(replies[2].value, 1);
    if (is_time(seconds) && rest_us >= 0 && rest_us < kUsPerSec) {
      learn_time(*node, replies[2], seconds * kUsPerSec + rest_us);
    }
  }
  return 0;
}

void RedisStoreBackend::keep_news() {
  // What is published reaches all nodes of a Cluster. Stores listen at different ones.
  if (!nodes_.all().empty() && opened_.shards > 0) {
    news_.keep(nodes_.of_shard(options_.session % opened_.shards).url);
  }
}

int RedisStoreBackend::reopen(std::string* message) {
  int error = 0;
  try {
    error = connect(false, message);
  } catch (const std::bad_alloc&) {
    nodes_.close();
    why_closed_.error = ENOMEM;
    why_closed_.message.clear();
    throw;
  }
  if (error != 0) {
    nodes_.close();
    why_closed_.error = error;
    why_closed_.message = *message;
  }
  return error;
}

std::string RedisStoreBackend::time_argument() const {
  return test_clock_ == nullptr ? ""
                                : std::to_string(test_clock_->now_ns_on(ClockId::kWall) / 1000);
}

std::string RedisStoreBackend::ahead_argument(const RedisStoreNode& node) const {
  if (test_clock_ != nullptr) return "0";
  // A lease must not count as over before it is, so the time of the store is never ahead.
  if (!node.clock.is_known()) return "";
  return std::to_string(std::max<int64_t>(node.clock.offset_us() - offset_us_, 0));
}

int64_t RedisStoreBackend::now_us() {
  return test_clock_ == nullptr ? system_clock().now_ns() / 1000 + offset_us_.load()
                                : test_clock_->now_ns_on(ClockId::kWall) / 1000;
}

void RedisStoreBackend::learn_time(RedisStoreNode& node, const RedisStoreLink::Reply& reply,
                                   int64_t server_us) {
  node.clock.learn(reply.sent_us, reply.received_us, server_us);
  int64_t slowest_us = kNeverUs;
  for (const auto& other : nodes_.all()) {
    if (other->has_shards && !other->clock.is_known()) {
      return;  // it may be the slowest
    }
    if (other->has_shards) {
      slowest_us = std::min(slowest_us, other->clock.offset_us());
    }
  }
  if (slowest_us != kNeverUs) {
    offset_us_ = slowest_us;
  }
}

bool RedisStoreBackend::execute(std::span<StoreRequest* const> requests) {
  failure_ = Failure();
  if (nodes_.all().empty()) {
    failure_ = why_closed_;
    if (failure_.message.empty()) {
      failure_.message = "Redis: the store is closed";
    }
  } else {
    failure_.error = nodes_.refusal(&failure_.message);
    nodes_.begin();
    keep_news();
  }
  for (StoreRequest* request : requests) {
    clear_answer(*request);
  }
  has_waited_ = false;
  size_t done = 0;
  while (failure_.error == 0 && done < requests.size()) {
    const auto rest = requests.subspan(done);
    const size_t count = part_size(rest);
    const bool is_divided = is_claim(rest[0]) && opened_.shards > 1;
    const bool works = is_divided ? claim_over_shards(*rest[0]) : carry_out(rest.first(count));
    if (is_claim(rest[count - 1])) {
      claims_apart_ = !works;
    }
    confirm(rest.first(count));
    done += count;
    if (!works) break;
  }
  for (StoreRequest* request : requests.subspan(done)) {
    request->failure = {failure_.error, failure_.message, false};
  }
  const WFStoreReceipt without_replicas = nodes_.receipt(false);
  receipt_ = has_waited_ ? receipt_ : without_replicas;
  if (failure_.error == 0) {
    said_fsync_ = without_replicas.level == WFStoreReceipt::kFsync;
  }
  return failure_.error == 0;
}

size_t RedisStoreBackend::part_size(std::span<StoreRequest* const> requests) const {
  const auto claim = std::find_if(requests.begin(), requests.end(), is_claim);
  const auto before = static_cast<size_t>(claim - requests.begin());
  if (claim == requests.end()) return before;
  const bool is_apart =
      opened_.shards > 1 || claims_apart_ || !std::all_of(requests.begin(), claim, is_of_run);
  return before == 0 || !is_apart ? before + 1 : before;
}

void RedisStoreBackend::confirm(std::span<StoreRequest* const> requests) {
  const auto has_receipt = [](const StoreRequest* request) {
    return request->failure.error == 0 && is_of_user(request);
  };
  if (std::any_of(requests.begin(), requests.end(), has_receipt)) {
    const WFStoreReceipt receipt = nodes_.receipt(true);
    receipt_ = has_waited_ && receipt_.level < receipt.level ? receipt_ : receipt;
    has_waited_ = true;
  }
  if (!nodes_.was_silent() || nodes_.is_still_right()) return;
  failure_ = {EAGAIN, nodes_.why_not_right()};  // also instead of what such a server has said
  for (StoreRequest* request : requests) {
    clear_answer(*request);
    request->failure = {failure_.error, failure_.message, true};
  }
}

bool RedisStoreBackend::carry_out(std::span<StoreRequest* const> requests) {
  std::vector<Job> jobs(requests.size());
  for (size_t i = 0; i < requests.size(); i++) {
    jobs[i] = {requests[i], redis_store_parts(*requests[i], opened_.shards, options_.session), 0};
  }
  return run(jobs);
}

bool RedisStoreBackend::claim_over_shards(StoreRequest& request) {
  const auto& claim = std::get<ClaimRequest>(request.what);
  std::vector<Job> peek(1);
  StoreRequest peeked = request;
  peek[0] = {&peeked, redis_store_parts(request, opened_.shards, options_.session, true), 0};
  std::vector<ClaimRequest> shares;
  bool works = run(peek);
  if (works && !redis_store_share(claim, peek[0].parts, &shares)) {
    fail(EILSEQ, "Redis: a reply makes no sense");
    works = false;
  }
  if (!works) {
    // What ended the cancelled timers has no answer that could be in doubt.
    request.failure = {failure_.error, failure_.message, false};
    return false;
  }
  std::vector<Job> claims(1);
  claims[0].request = &request;
  size_t planned = 0;
  for (size_t shard = 0; shard < opened_.shards; shard++) {
    size_t share_size = 0;
    for (const ClaimRequest::Kind& kind : shares[shard].kinds) {
      share_size += kind.max;
    }
    planned += share_size;
    if (share_size > 0) {
      StoreRequest share;
      share.what = std::move(shares[shard]);
      RedisStorePart part =
          std::move(redis_store_parts(share, opened_.shards, options_.session)[shard]);
      // The claim takes the boundary between fresh and overdue from the look.
      const protocol::RedisValue& seen = peek[0].parts[shard].reply;
      if (seen.arr_size() > 4) {
        part.arguments[2] = "@" + seen[4].string_value();
      }
      claims[0].parts.push_back(std::move(part));
    } else {
      // What it has said stays.
      claims[0].parts.push_back(std::move(peek[0].parts[shard]));
      claims[0].parts.back().letter = ' ';
    }
  }
  if (!run(claims)) return false;
  // If others have claimed some of what was seen, timers of other shards can be taken instead.
  auto& answered = std::get<ClaimRequest>(request.what);
  answered.again = answered.again || (answered.more && answered.claimed.size() < planned);
  return true;
}

bool RedisStoreBackend::run(std::vector<Job>& jobs) {
  std::vector<Lane> lanes(opened_.shards);
  for (Job& job : jobs) {
    for (RedisStorePart& part : job.parts) {
      if (part.letter == ' ') {
        job.answered++;
      } else {
        lanes[part.shard].waiting.emplace_back(&job, &part);
      }
    }
  }
  const auto has_more = [&lanes] {
    return std::any_of(lanes.begin(), lanes.end(),
                       [](const Lane& lane) { return lane.done < lane.waiting.size(); });
  };
  bool works = true;
  while (works && has_more()) {
    works = run_round(lanes);
  }
  settle(jobs);
  return failure_.error == 0;
}

void RedisStoreBackend::fill(Lane& lane) {
  size_t bytes = 0;
  lane.under_way = 0;
  for (size_t i = lane.done; i < lane.waiting.size() && lane.under_way < kMaxAtOnce; i++) {
    const RedisStorePart& part = *lane.waiting[i].second;
    bytes += part.bytes();
    if (lane.under_way > 0 && bytes > kMaxBytes) break;
    lane.under_way++;
    if (part.ends_script()) break;
  }
}

std::string RedisStoreBackend::command_of(size_t shard, const Lane& lane,
                                          const RedisStoreNode& node) const {
  std::vector<std::string> arguments = {
      opened_.id,
      time_argument(),
      std::to_string(options_.remembered),
      sender_,
      lane.full ? "full" : "",
      place_.channel(),
      node.about.identity,
      ahead_argument(node),
      std::to_string(opened_.last[shard]),
  };
  std::string numbers;
  std::string names;
  std::vector<std::string> parts;
  for (size_t i = 0; i < lane.under_way; i++) {
    const RedisStorePart& part = *lane.waiting[lane.done + i].second;
    part.look_ahead(&numbers, &names);
    parts.push_back(part.packed());
  }
  arguments.push_back(std::move(numbers));
  arguments.push_back(std::move(names));
  arguments.insert(arguments.end(), std::make_move_iterator(parts.begin()),
                   std::make_move_iterator(parts.end()));
  const std::string& text = lane.full ? redis_store_script_when_full() : redis_store_script();
  const std::string& sha = lane.full ? full_script_sha_ : script_sha_;
  return redis_store_command(lane.whole ? "EVAL" : "EVALSHA", lane.whole ? text : sha, place_,
                             shard, arguments);
}

bool RedisStoreBackend::run_round(std::vector<Lane>& lanes) {
  std::vector<RedisStoreNodes::Question> questions;
  for (size_t shard = 0; shard < lanes.size(); shard++) {
    Lane& lane = lanes[shard];
    if (lane.done < lane.waiting.size()) {
      fill(lane);
      RedisStoreNodes::Question& question = questions.emplace_back();
      question.shard = shard;
      question.command = [this, shard, &lane](const RedisStoreNode& node) {
        return command_of(shard, lane, node);
      };
    }
  }
  nodes_.ask(questions);
  bool works = true;
  for (RedisStoreNodes::Question& question : questions) {
    works = take_reply(lanes[question.shard], question) && works;
  }
  return works;
}

bool RedisStoreBackend::take_error(Lane& lane, RedisStoreNodes::Question& asked) {
  const std::string text = asked.reply.value.string_value();
  if (starts_with_code(text, "NOSCRIPT") && !lane.whole) {
    lane.whole = true;
    return true;
  }
  if (starts_with_code(text, "OOM") && !lane.full) {
    lane.full = true;
    lane.whole = false;
    return true;
  }
  RedisStoreError error = RedisStoreError::of(text);
  std::string message =
      asked.node->link.name() + ", shard " + std::to_string(asked.shard) + ": " + text;
  if (starts_with_code(text, "NEWSERVER") && lane.openings++ < kMaxOpenings) {
    RedisStoreOpening opened = opened_;
    error.error =
        opened.open_again(nodes_, place_, asked.shard, *asked.node, time_argument(), &message);
    if (error.error == 0) {
      error.error = refuse_broken_word(opened, &message);
    }
    if (error.error == 0) {
      opened_ = std::move(opened);
      return true;
    }
  }
  fail(error.error, std::move(message));
  fail_lane(lane, error.in_doubt);
  return false;
}

bool RedisStoreBackend::take_reply(Lane& lane, RedisStoreNodes::Question& asked) {
  RedisStoreLink::Reply& reply = asked.reply;
  if (reply.error != 0) {
    fail(reply.error, reply.reason);
    fail_lane(lane, reply.sent);
    return false;
  }
  if (options_.times) {
    options_.times->round_trip.add((reply.received_us - reply.sent_us) * kNsPerUs);
  }
  if (reply.value.is_error()) return take_error(lane, asked);
  const int64_t server_us = redis_store_number(reply.value, 0);
  // The time, the progress and the highest number come before the answers.
  const size_t parts = reply.value.arr_size();
  if (parts < 4 || parts > lane.under_way + 3 || !is_time(server_us / kUsPerSec)) {
    fail(EILSEQ, asked.node->link.name() + ": a reply makes no sense");
    fail_lane(lane, true);
    return false;
  }
  learn_time(*asked.node, reply, server_us);
  opened_.progress[asked.shard] = redis_store_number(reply.value, 1);
  opened_.last[asked.shard] = redis_store_number(reply.value, 2);
  const int64_t ahead_us =
      test_clock_ == nullptr ? asked.node->clock.offset_us() - offset_us_.load() : 0;
  // The script may have left the last ones for the next one.
  const size_t answered = parts - 3;
  for (size_t i = 0; i < answered; i++) {
    auto& [job, part] = lane.waiting[lane.done + i];
    part->reply = std::move(reply.value[i + 3]);
    part->ahead_us = ahead_us;
    job->answered++;
  }
  lane.done += answered;
  lane.whole = lane.full = false;
  lane.openings = 0;
  return true;
}

void RedisStoreBackend::fail(int error, std::string message) {
  if (failure_.error == 0) {
    failure_ = {error, std::move(message)};
  }
}

void RedisStoreBackend::fail_lane(Lane& lane, bool in_doubt) {
  for (size_t i = 0; i < lane.under_way; i++) {
    StoreFailure& failure = lane.waiting[lane.done + i].first->request->failure;
    failure.in_doubt = failure.in_doubt || in_doubt;
  }
}

void RedisStoreBackend::settle(std::vector<Job>& jobs) {
  for (Job& job : jobs) {
    if (job.answered == job.parts.size()) {
      if (redis_store_answer(job.parts, opened_.shards, job.request)) continue;
      fail(EILSEQ, "Redis: a reply makes no sense");
      job.request->failure.in_doubt = true;
    }
    // Some shards may have done their part.
    const bool in_doubt = job.request->failure.in_doubt || job.answered > 0;
    clear_answer(*job.request);
    job.request->failure = {failure_.error, failure_.message, in_doubt};
  }
}

std::unique_ptr<StoreBackend> open_redis_backend(const std::string& url,
                                                 const StoreBackendOptions& options, int* error,
                                                 std::string* message) {
  return RedisStoreBackend::open(url, options, nullptr, error, message);
}

}  // namespace workflow

#include "store/RedisStoreBackend.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "store/RedisStoreScripts.h"
#include "store/RedisWire.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

std::string session_text(uint64_t session) {
  return std::to_string(session);
}

bool starts_with_code(const std::string& text, std::string_view code) {
  return text.starts_with(code) && (text.size() == code.size() || text[code.size()] == ' ');
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
  if (*error != 0) {
    return nullptr;
  }
  std::unique_ptr<RedisStoreBackend> backend(
      new RedisStoreBackend(std::move(place), options, test_clock));
  *error = backend->connect("", options.create, message);
  return *error == 0 ? std::move(backend) : nullptr;
}

RedisStoreBackend::RedisStoreBackend(RedisStorePlace place, const StoreBackendOptions& options,
                                     Clock* test_clock)
    : place_(std::move(place)),
      options_(options),
      test_clock_(test_clock),
      sender_(session_text(options.session)),
      news_(place_.server_url, place_.channel(), sender_, options.changed) {}

RedisStoreBackend::~RedisStoreBackend() {
  close();
}

void RedisStoreBackend::close() {
  news_.close();
  link_.reset();
}

int RedisStoreBackend::connect(const std::string& known_id, bool create, std::string* message) {
  link_ = std::make_unique<RedisStoreLink>(place_.server);
  int error = server_.open(*link_, place_, known_id, create, time_argument(), message);
  if (error != 0) {
    return error;
  }
  std::string load;
  append_command(&load, {"SCRIPT", "LOAD", redis_store_script()});
  std::string load_full;
  append_command(&load_full, {"SCRIPT", "LOAD", redis_store_script_when_full()});
  std::string time;
  append_command(&time, {"TIME"});
  const auto replies = link_->ask(std::vector<std::string>{load, load_full, time});
  for (const RedisStoreLink::Reply& reply : replies) {
    if (reply.error != 0 || reply.value.is_error()) {
      *message = reply.error != 0 ? reply.reason : "Redis: " + reply.value.string_value();
      return reply.error != 0 ? reply.error : EIO;
    }
  }
  script_sha_ = replies[0].value.string_value();
  full_script_sha_ = replies[1].value.string_value();
  if (replies[2].value.arr_size() == 2) {
    int64_t seconds = 0;
    int64_t us = 0;
    const std::string first = replies[2].value[0].string_value();
    const std::string second = replies[2].value[1].string_value();
    std::from_chars(first.data(), first.data() + first.size(), seconds);
    std::from_chars(second.data(), second.data() + second.size(), us);
    knows_offset_ = false;
    learn_time(replies[2], seconds * kUsPerSec + us);
  }
  news_.keep();
  return 0;
}

int RedisStoreBackend::reopen(std::string* message) {
  // Its id is kept by whatever fails.
  const std::string known_id = server_.id;
  const RedisStoreServer before = server_;
  const int error = connect(known_id, false, message);
  if (error != 0) {
    server_ = before;
  }
  return error;
}

std::string RedisStoreBackend::time_argument() const {
  return test_clock_ == nullptr ? ""
                                : std::to_string(test_clock_->now_ns_on(ClockId::kWall) / 1000);
}

int64_t RedisStoreBackend::now_us() {
  return test_clock_ == nullptr ? system_clock().now_ns() / 1000 + offset_us_.load()
                                : test_clock_->now_ns_on(ClockId::kWall) / 1000;
}

void RedisStoreBackend::learn_time(const RedisStoreLink::Reply& reply, int64_t server_us) {
  // The server has looked at its clock between these two moments.
  const int64_t least_us = server_us - reply.received_us;
  const int64_t most_us = server_us - reply.sent_us;
  const int64_t offset_us = knows_offset_ ? offset_us_.load() : least_us + (most_us - least_us) / 2;
  offset_us_ = std::clamp(offset_us, least_us, std::max(least_us, most_us));
  knows_offset_ = true;
}

bool RedisStoreBackend::execute(std::span<StoreRequest* const> requests) {
  failure_ = Failure();
  news_.keep();
  for (StoreRequest* request : requests) {
    redis_store_clear(request);
  }
  size_t done = 0;
  while (done < requests.size()) {
    // Claims of several shards take two steps, and others wait for them.
    const auto takes_two = [this](const StoreRequest* request) {
      return server_.shards > 1 && std::holds_alternative<ClaimRequest>(request->what);
    };
    const auto rest = requests.subspan(done);
    const auto next = std::find_if(rest.begin(), rest.end(), takes_two);
    const auto count = static_cast<size_t>(next - rest.begin());
    const bool works = count > 0 ? carry_out(rest.first(count)) : claim_over_shards(*rest[0]);
    done += count > 0 ? count : 1;
    if (!works) {
      break;
    }
  }
  for (StoreRequest* request : requests.subspan(done)) {
    request->failure = {failure_.error, failure_.message, false};
  }
  return failure_.error == 0;
}

bool RedisStoreBackend::carry_out(std::span<StoreRequest* const> requests) {
  std::vector<Job> jobs(requests.size());
  for (size_t i = 0; i < requests.size(); i++) {
    jobs[i] = {requests[i], redis_store_parts(*requests[i], server_.shards), 0};
  }
  return run(jobs);
}

bool RedisStoreBackend::claim_over_shards(StoreRequest& request) {
  const auto& claim = std::get<ClaimRequest>(request.what);
  std::vector<Job> peek(1);
  StoreRequest peeked = request;
  peek[0] = {&peeked, redis_store_parts(request, server_.shards, true), 0};
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
  for (size_t shard = 0; shard < server_.shards; shard++) {
    const auto& kinds = shares[shard].kinds;
    const bool takes = std::any_of(kinds.begin(), kinds.end(),
                                   [](const ClaimRequest::Kind& kind) { return kind.max > 0; });
    if (takes) {
      StoreRequest share;
      share.what = shares[shard];
      RedisStorePart part = std::move(redis_store_parts(share, server_.shards)[shard]);
      // The same boundary between fresh and overdue as in the look.
      const protocol::RedisValue& seen = peek[0].parts[shard].reply;
      if (seen.arr_size() == 5) {
        part.arguments[2] = "@" + seen[4].string_value();
      }
      claims[0].parts.push_back(std::move(part));
    } else {
      // What it has said stays.
      claims[0].parts.push_back(std::move(peek[0].parts[shard]));
      claims[0].parts.back().letter = ' ';
    }
  }
  return run(claims);
}

bool RedisStoreBackend::run(std::vector<Job>& jobs) {
  std::vector<Lane> lanes(server_.shards);
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

std::string RedisStoreBackend::command_of(size_t shard, Lane& lane) {
  std::vector<std::string> arguments = {
      server_.id, time_argument(),         std::to_string(options_.remembered),
      sender_,    lane.full ? "full" : "", place_.channel()};
  size_t bytes = 0;
  lane.under_way = 0;
  for (size_t i = lane.done; i < lane.waiting.size() && lane.under_way < kMostAtOnce; i++) {
    const RedisStorePart& part = *lane.waiting[i].second;
    bytes += part.bytes();
    if (lane.under_way > 0 && bytes > kMostBytes) {
      break;
    }
    arguments.emplace_back(1, part.letter);
    arguments.push_back(std::to_string(part.arguments.size()));
    arguments.insert(arguments.end(), part.arguments.begin(), part.arguments.end());
    lane.under_way++;
  }
  const std::string& text = lane.full ? redis_store_script_when_full() : redis_store_script();
  const std::string& sha = lane.full ? full_script_sha_ : script_sha_;
  return redis_store_command(lane.whole ? "EVAL" : "EVALSHA", lane.whole ? text : sha, place_,
                             shard, arguments);
}

bool RedisStoreBackend::run_round(std::vector<Lane>& lanes) {
  std::vector<size_t> shards;
  std::vector<std::string> commands;
  for (size_t shard = 0; shard < lanes.size(); shard++) {
    if (lanes[shard].done < lanes[shard].waiting.size()) {
      shards.push_back(shard);
      commands.push_back(command_of(shard, lanes[shard]));
    }
  }
  std::vector<RedisStoreLink::Reply> replies = link_->ask(commands);
  bool works = true;
  for (size_t i = 0; i < shards.size(); i++) {
    works = take_reply(shards[i], lanes[shards[i]], replies[i]) && works;
  }
  return works;
}

bool RedisStoreBackend::take_reply(size_t shard, Lane& lane, RedisStoreLink::Reply& reply) {
  if (reply.error != 0) {
    fail(reply.error, reply.reason);
    fail_lane(lane, reply.sent);
    return false;
  }
  if (reply.value.is_error()) {
    const std::string text = reply.value.string_value();
    if (starts_with_code(text, "NOSCRIPT") && !lane.whole) {
      lane.whole = true;
      return true;
    }
    if (starts_with_code(text, "OOM") && !lane.full) {
      lane.full = true;
      lane.whole = false;
      return true;
    }
    const RedisStoreError error = RedisStoreError::of(text);
    fail(error.error, "Redis, shard " + std::to_string(shard) + ": " + text);
    fail_lane(lane, error.in_doubt);
    return false;
  }
  int64_t server_us = 0;
  const std::string time = reply.value.arr_size() > 0 ? reply.value[0].string_value() : "";
  std::from_chars(time.data(), time.data() + time.size(), server_us);
  if (reply.value.arr_size() != lane.under_way + 1 || server_us == 0) {
    fail(EILSEQ, "Redis: a reply makes no sense");
    fail_lane(lane, true);
    return false;
  }
  learn_time(reply, server_us);
  for (size_t i = 0; i < lane.under_way; i++) {
    auto& [job, part] = lane.waiting[lane.done + i];
    part->reply = std::move(reply.value[i + 1]);
    job->answered++;
  }
  lane.done += lane.under_way;
  lane.whole = lane.full = false;
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
      if (redis_store_answer(job.parts, server_.shards, job.request)) {
        continue;
      }
      fail(EILSEQ, "Redis: a reply makes no sense");
      job.request->failure.in_doubt = true;
    }
    // Some shards may have done their part.
    const bool in_doubt = job.request->failure.in_doubt || job.answered > 0;
    redis_store_clear(job.request);
    job.request->failure = {failure_.error, failure_.message, in_doubt};
  }
}

std::unique_ptr<StoreBackend> open_redis_backend(const std::string& url,
                                                 const StoreBackendOptions& options, int* error,
                                                 std::string* message) {
  return RedisStoreBackend::open(url, options, nullptr, error, message);
}

}  // namespace workflow

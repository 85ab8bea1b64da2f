#include "store/RedisStoreLink.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/BlockingScope.h"
#include "kernel/ErrorText.h"
#include "kernel/Runtime.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "workflow/WFTaskError.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

// How long a server may be silent.
constexpr int64_t kLimitMs = 10'000;
constexpr int64_t kLimitAtStopMs = 2'000;

int64_t mono_us() {
  return system_clock().now_ns() / 1000;
}

// Others refer to the reply meanwhile, so nothing may be thrown. Without memory there is no reason.
template <class REASON>
void set_reason(const RedisStoreLink& link, RedisStoreLink::Reply* reply, const REASON& reason) {
  try {
    reply->reason = link.name() + ": " + reason();
  } catch (const std::bad_alloc&) {
    reply->reason.clear();
  }
}

std::string reason_of(int state, int error) {
  const char* const text = error_text(state, error);
  switch (state) {
    case WFT_STATE_DNS_ERROR:
      return std::string("the host was not found: ") + text;
    case WFT_STATE_SSL_ERROR:
      return std::string("TLS: ") + text;
    case WFT_STATE_TASK_ERROR:
      if (error == WFT_ERR_REDIS_ACCESS_DENIED) {
        return "the server refuses the user, the password or the database of the URL";
      }
      return error == WFT_ERR_UPSTREAM_UNAVAILABLE ? "the server is no master" : text;
    default:
      return text;
  }
}

int errno_of(int state, int error) {
  if (state == WFT_STATE_SYS_ERROR && error > 0) return error;
  if (state == WFT_STATE_TASK_ERROR && error == WFT_ERR_REDIS_ACCESS_DENIED) return EACCES;
  return state == WFT_STATE_TASK_ERROR && error == WFT_ERR_UPSTREAM_UNAVAILABLE ? EROFS : EIO;
}

void set_failure(const RedisStoreLink& link, const RedisPipeline::Outcome& outcome,
                 RedisStoreLink::Reply* reply) {
  reply->sent = outcome.sent;
  reply->error = errno_of(outcome.state, outcome.error);
  set_reason(link, reply, [&] { return reason_of(outcome.state, outcome.error); });
}

constexpr int64_t kGraceUs = 200'000;

// What is awaited. Shared by the caller and the callbacks.
struct Awaited {
  const std::vector<RedisStoreLink::Question>& questions;
  std::vector<RedisStoreLink::Reply>& replies;
  Mutex mutex;
  CondVar changed;
  size_t left WF_GUARDED_BY(mutex);
  size_t good WF_GUARDED_BY(mutex) = 0;

  Awaited(const std::vector<RedisStoreLink::Question>& all, std::vector<RedisStoreLink::Reply>& of)
      : questions(all), replies(of), left(all.size()) {}

  // The reply to question i is there, or there will be none.
  void answer(size_t i, RedisPipeline::Outcome&& outcome) {
    RedisStoreLink::Reply& reply = replies[i];
    reply.received_us = mono_us();
    if (outcome.state == WFT_STATE_SUCCESS) {
      reply.value = std::move(outcome.value);
    } else {
      set_failure(*questions[i].link, outcome, &reply);
    }
    answered(reply.error == 0);
  }
  void answered(bool is_good) {
    MutexLock lock(mutex);
    left--;
    good += is_good ? 1 : 0;
    changed.notify_all();
  }
  // Waits until everything is there. False: time has passed, or nothing has changed for so long, or
  // `enough` are good.
  bool wait(int64_t us, size_t enough) {
    BlockingScope blocking;
    MutexLock lock(mutex);
    const int64_t end_ns = system_clock().now_ns() + us * 1000;
    const size_t before = left;
    while (left > 0 && left == before && good < enough) {
      if (!changed.wait_until(mutex, end_ns)) break;
    }
    return left == 0;
  }
  bool has(size_t enough) {
    MutexLock lock(mutex);
    return good >= enough;
  }
  size_t missing() {
    MutexLock lock(mutex);
    return left;
  }
};

// Callbacks refer to what is awaited, so nothing may be thrown. Without memory nobody knows.
bool may_go_on(const RedisStoreLink::Patience& patience) {
  try {
    return !patience.goes_on || patience.goes_on();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

enum class Waited { kForAll, kForEnough, kTooLong };

void end_silent(const std::vector<RedisStoreLink::Question>& questions) {
  for (const RedisStoreLink::Question& question : questions) {
    question.link->end_if_silent();
  }
}

Waited wait_for(Awaited& awaited, const RedisStoreLink::Patience& patience) {
  while (!awaited.has(patience.enough)) {
    const size_t missing = awaited.missing();
    if (awaited.wait(RedisStoreLink::kSilenceUs, patience.enough)) return Waited::kForAll;
    end_silent(awaited.questions);
    const bool is_silent = awaited.missing() == missing;
    if (is_silent && !may_go_on(patience)) return Waited::kTooLong;
  }
  const int64_t end_us = mono_us() + kGraceUs;
  while (mono_us() < end_us) {
    if (awaited.wait(end_us - mono_us(), SIZE_MAX)) return Waited::kForAll;
  }
  return Waited::kForEnough;
}

// What was given up may have been done, while ECANCELED would say that it was not.
void set_given_up(const RedisStoreLink& link, Waited waited, RedisStoreLink::Reply* reply) {
  const bool is_late = waited == Waited::kForEnough;
  reply->error = is_late ? ETIMEDOUT : EAGAIN;
  set_reason(link, reply, [is_late] {
    return std::string(is_late ? "no reply came in time"
                               : "another server may have become the master");
  });
}

}  // namespace

RedisStoreLink::RedisStoreLink(const RedisUrl& url)
    : name_("Redis at " + url.address()), last_reply_us_(mono_us()), pipeline_(url) {}

std::vector<RedisStoreLink::Reply> RedisStoreLink::ask_each(const std::vector<Question>& questions,
                                                            const Patience& patience) {
  std::vector<Reply> replies(questions.size());
  Awaited awaited(questions, replies);
  for (size_t i = 0; i < questions.size(); i++) {
    Reply& reply = replies[i];
    reply.sent_us = mono_us();
    const RedisStoreLink& link = *questions[i].link;
    // A function of two words needs no memory. If making one failed, earlier ones would already
    // refer to what is awaited.
    const auto callback = [&awaited, i](RedisPipeline::Outcome&& outcome) {
      awaited.answer(i, std::move(outcome));
    };
    if (const int error = questions[i].link->pipeline_.post(questions[i].command, callback)) {
      const RedisPipeline::Outcome ending = questions[i].link->pipeline_.ending();
      if (error == ECANCELED && ending.error != ECANCELED) {
        set_failure(link, ending, &reply);  // the connection was refused before this was asked
      } else {
        reply.error = error == ECANCELED ? ENOTCONN : error;
        reply.sent = false;
        set_reason(link, &reply, [&reply] { return std::string(std::strerror(reply.error)); });
      }
      awaited.answered(false);
    }
  }
  const Waited waited = wait_for(awaited, patience);
  if (waited != Waited::kForAll) {
    // Those that have answered are not used by the caller after this, either.
    for (const Question& question : questions) {
      question.link->pipeline_.close();
    }
  }
  for (size_t i = 0; i < questions.size(); i++) {
    if (replies[i].error == 0) {
      questions[i].link->heard(replies[i].received_us);
    } else if (waited != Waited::kForAll && replies[i].error == ECANCELED) {
      set_given_up(*questions[i].link, waited, &replies[i]);
    }
  }
  return replies;
}

void RedisStoreLink::end_if_silent() {
  const bool stops = Runtime::current().stopping();
  pipeline_.end_if_silent(stops ? kLimitAtStopMs : kLimitMs);
  if (stops) {
    pipeline_.end_if_unconnected();
  }
}

void RedisStoreLink::heard(int64_t received_us) {
  if (received_us - last_reply_us_ >= kSilenceUs) {
    last_silence_us_ = received_us;
  }
  last_reply_us_ = std::max(last_reply_us_, received_us);
}

void RedisStoreLink::was_checked(int64_t began_us) {
  if (last_silence_us_ <= began_us) {
    last_silence_us_ = 0;
  }
}

std::vector<RedisStoreLink::Reply> RedisStoreLink::ask(const std::vector<std::string>& commands) {
  std::vector<Question> questions;
  questions.reserve(commands.size());
  for (const std::string& command : commands) {
    questions.push_back({this, command});
  }
  return ask_each(questions, {});
}

RedisStoreLink::Reply RedisStoreLink::ask(const std::string& command) {
  return std::move(ask(std::vector<std::string>{command})[0]);
}

}  // namespace workflow

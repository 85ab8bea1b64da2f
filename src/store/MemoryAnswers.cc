#include "store/MemoryAnswers.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <variant>

#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

// Gives `to` the answer of `from`: the fields of an answer that its kind of request has.
template <class ANSWERED>
void copy_answer(const ANSWERED& from, ANSWERED& to) {
  if constexpr (requires { from.answers; }) {
    to.answers = from.answers;
  }
  if constexpr (requires { from.timer; }) {
    to.timer = from.timer;
  }
  if constexpr (requires { from.count; }) {
    to.count = from.count;
  }
}

template <class ANSWERED>
void fill(const ANSWERED& from, WFStoreResult& result) {
  if constexpr (requires { from.answers; }) {
    result.answers = from.answers;
  }
  if constexpr (requires { from.timer; }) {
    result.timer = from.timer;
  }
  if constexpr (requires { from.count; }) {
    result.count = from.count;
  }
}

}  // namespace

bool MemoryAnswers::is_remembered(const StoreRequest& request) {
  return request.id.number != 0 && (std::holds_alternative<ScheduleRequest>(request.what) ||
                                    std::holds_alternative<CancelRequest>(request.what) ||
                                    std::holds_alternative<RescheduleRequest>(request.what) ||
                                    std::holds_alternative<FailedRequest>(request.what));
}

StoreRequest MemoryAnswers::used_up(const WFStoreRequestId& id) {
  StoreRequest request;
  request.id = id;
  request.failure = {ECANCELED, "the request was asked for before it arrived", false};
  return request;
}

bool MemoryAnswers::repeat(StoreRequest& request) const {
  if (!is_remembered(request)) return false;
  const auto session = sessions_.find(request.id.session);
  if (session == sessions_.end()) return false;
  const auto found = session->second.answers.find(request.id.number);
  if (found == session->second.answers.end()) return false;
  const StoreRequest& answered = found->second;
  request.failure = answered.failure;
  if (answered.failure.error != ECANCELED && answered.what.index() != request.what.index()) {
    request.failure = {EINVAL, "the id belongs to a request of another kind", false};
    return true;
  }
  std::visit(
      [&answered](auto& to) {
        if (const auto* from = std::get_if<std::remove_reference_t<decltype(to)>>(&answered.what)) {
          copy_answer(*from, to);
        }
      },
      request.what);
  return true;
}

void MemoryAnswers::remember(const StoreRequest& request, size_t remembered) {
  if (!is_remembered(request)) return;
  StoreRequest answer = request;
  if (auto* schedule = std::get_if<ScheduleRequest>(&answer.what)) {
    schedule->spec = StoredSpec();
  }
  insert(session(request.id), std::move(answer), remembered);
}

void MemoryAnswers::ask(AskRequest& ask, StoreFailure& failure, size_t remembered) {
  ask.result.request = ask.asked;
  Session* session = nullptr;
  if (const auto found = sessions_.find(ask.asked.session); found != sessions_.end()) {
    session = &found->second;
    if (const auto answer = session->answers.find(ask.asked.number);
        answer != session->answers.end()) {
      const StoreRequest& answered = answer->second;
      if (answered.failure.error == ECANCELED) return;  // it was used up by an earlier question
      ask.found = true;
      ask.result.state = answered.failure.error != 0 ? WFT_STATE_SYS_ERROR : WFT_STATE_SUCCESS;
      ask.result.error = answered.failure.error;
      ask.result.message = answered.failure.message;
      std::visit([&ask](const auto& from) { fill(from, ask.result); }, answered.what);
      return;
    }
  }
  const bool forgotten =
      session != nullptr ? ask.asked.number <= session->newest_forgotten : sessions_dropped_;
  if (forgotten || remembered == 0) {
    failure = {ENODATA, "the store does not remember requests from so long ago", false};
    return;
  }
  insert(this->session(ask.asked), used_up(ask.asked), remembered);
}

MemoryAnswers::Session& MemoryAnswers::session(const WFStoreRequestId& request) {
  const bool is_new = !sessions_.contains(request.session);
  if (is_new && sessions_.size() >= kMaxSessions) {
    sessions_.erase(std::min_element(
        sessions_.begin(), sessions_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    sessions_dropped_ = true;
  }
  Session& session = sessions_[request.session];
  if (is_new && sessions_dropped_) {
    session.newest_forgotten = std::max<uint64_t>(request.number, 1) - 1;
  }
  session.used = ++uses_;
  return session;
}

void MemoryAnswers::insert(Session& session, StoreRequest request, size_t remembered) {
  const uint64_t number = request.id.number;
  session.answers.insert_or_assign(number, std::move(request));
  session.order.push_back(number);
  while (session.order.size() > remembered) {
    const uint64_t oldest = session.order.front();
    session.newest_forgotten = std::max(session.newest_forgotten, oldest);
    session.answers.erase(oldest);
    session.order.pop_front();
  }
}

}  // namespace workflow

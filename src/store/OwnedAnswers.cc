#include "store/OwnedAnswers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "store/MemoryRecord.h"
#include "store/SqliteAnswerText.h"

namespace workflow {

OwnedAnswers::Found OwnedAnswers::find(const WFStoreRequestId& id, WFStoreResult& result) {
  const auto session = sessions_.find(id.session);
  if (session == sessions_.end()) {
    return has_dropped_ || remembered_ == 0 ? Found::kForgotten : Found::kNo;
  }
  const auto found = session->second.answers.find(id.number);
  if (found == session->second.answers.end()) {
    return id.number <= session->second.forgotten || remembered_ == 0 ? Found::kForgotten
                                                                      : Found::kNo;
  }
  if (found->second.used_up) return Found::kUsedUp;
  decode_answer(found->second.text, &result);  // what was read from a file was verified then
  return Found::kYes;
}

void OwnedAnswers::know(uint64_t id) {
  const auto [place, is_new] = sessions_.try_emplace(id, id);
  Session& session = place->second;
  session.used = ++uses_;
  note_changed(session);
  if (is_new) {
    drop_oldest(id);
  }
}

void OwnedAnswers::note_changed(Session& session) {
  if (!std::exchange(session.changed, true)) {
    changed_.push_back(session.id);
  }
}

void OwnedAnswers::keep(const WFStoreRequestId& id, std::optional<std::string>&& text) {
  if (remembered_ == 0) return;
  const bool is_new = !sessions_.contains(id.session);
  know(id.session);
  Session& session = sessions_.at(id.session);
  if (is_new && has_dropped_) {
    // Its answers may have been dropped with it. A question may be for number 0.
    session.forgotten = std::max<uint64_t>(id.number, 1) - 1;
  }
  const auto place =
      session.answers.try_emplace(session.answers.end(), id.number, id.session, id.number);
  Answer& answer = place->second;
  answer.used_up = !text;
  answer.text = std::move(text).value_or(std::string());
  answers_++;
  write_again(answer);
  trim(session);
  drop_oldest(id.session);
}

void OwnedAnswers::trim(Session& session) {
  if (session.answers.size() > remembered_) {
    note_changed(session);  // `forgotten` must outlast the records of these answers
  }
  while (session.answers.size() > remembered_) {
    const auto first = session.answers.begin();
    session.forgotten = std::max(session.forgotten, first->first);
    journal_.forget(first->second);
    session.answers.erase(first);
    answers_--;
  }
}

void OwnedAnswers::drop_oldest(uint64_t kept) {
  while (sessions_.size() > kMaxSessions || answers_ > kFullSessions * remembered_) {
    uint64_t oldest = 0;
    uint64_t oldest_use = std::numeric_limits<uint64_t>::max();
    for (const auto& [id, session] : sessions_) {
      if (id != kept && session.used < oldest_use) {
        oldest = id;
        oldest_use = session.used;
      }
    }
    StoreBytes::put(journal_.begin(MemoryRecord::kDropped), oldest);
    journal_.end(nullptr);
    drop(oldest);
    has_dropped_ = true;
  }
}

void OwnedAnswers::drop(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  for (auto& [number, answer] : found->second.answers) {
    journal_.forget(answer);
  }
  answers_ -= found->second.answers.size();
  journal_.forget(found->second);
  sessions_.erase(found);
}

void OwnedAnswers::write() {
  for (const uint64_t id : changed_) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;  // it was dropped meanwhile
    write_again(found->second);
    found->second.changed = false;
  }
  changed_.clear();
}

void OwnedAnswers::write_again(Answer& answer) {
  std::string& out = journal_.begin(MemoryRecord::kAnswer);
  StoreBytes::put(out, answer.session);
  StoreBytes::put(out, answer.number);
  StoreBytes::put(out, uint64_t{answer.used_up});
  StoreBytes::put(out, answer.text);
  journal_.end(&answer);
}

void OwnedAnswers::write_again(Session& session) {
  std::string& out = journal_.begin(MemoryRecord::kSession);
  StoreBytes::put(out, session.id);
  StoreBytes::put(out, session.forgotten);
  StoreBytes::put(out, session.used);
  journal_.end(&session);
}

bool OwnedAnswers::read(char kind, StoreBytes::Reader& record) {
  const size_t size = record.left();
  const uint64_t id = record.number();
  if (kind == MemoryRecord::kDropped && record.good()) {
    drop(id);
    return true;
  }
  Session& session = sessions_.try_emplace(id, id).first->second;
  if (kind == MemoryRecord::kSession) {
    session.forgotten = std::max(session.forgotten, record.number());
    session.used = record.number();
    uses_ = std::max(uses_, session.used);
    journal_.place(session, size - record.left());
    return record.good();
  }
  const uint64_t number = record.number();
  const auto [place, is_new] = session.answers.try_emplace(number, id, number);
  answers_ += is_new ? 1 : 0;
  Answer& answer = place->second;
  answer.used_up = record.number() != 0;
  answer.text = record.text();
  journal_.place(answer, size - record.left());
  WFStoreResult result;
  return kind == MemoryRecord::kAnswer && record.good() &&
         (answer.used_up || decode_answer(answer.text, &result));
}

void OwnedAnswers::restore(bool has_dropped) {
  has_dropped_ = has_dropped;
  for (auto& [id, session] : sessions_) {
    trim(session);
  }
}

}  // namespace workflow

#include "store/SqliteAnswers.h"

#include <algorithm>
#include <cerrno>

#include "store/SqliteAnswerText.h"

namespace workflow {

SqliteAnswers::Session& SqliteAnswers::session(uint64_t id) {
  const auto [place, is_new] = sessions_.try_emplace(id);
  Session& session = place->second;
  if (is_new) {
    SqliteCursor row = session_.find(id);
    if (row.next()) {
      session = {row.integer(0), row.integer(1), row.integer(2), row.integer(3), true, false};
    }
  }
  return session;
}

SqliteAnswers::Found SqliteAnswers::find(StoreRequest& request) {
  WFStoreResult result;
  const Found found = read(request.id, result);
  if (found == Found::kYes) {
    set_result(result, &request);
  }
  return found;
}

SqliteAnswers::Found SqliteAnswers::read(const WFStoreRequestId& id, WFStoreResult& result) {
  const Session& session = this->session(id.session);
  const auto number = static_cast<int64_t>(id.number);
  if (!session.known) {
    return meta_.has_dropped || remembered_ == 0 ? Found::kForgotten : Found::kNo;
  }
  if (number <= session.newest) {
    SqliteCursor row = select_.find(id.session, id.number);
    if (row.next()) {
      if (row.is_null(0)) {
        return Found::kUsedUp;
      }
      if (!decode_answer(row.bytes(0), &result)) {
        connection_.note(SQLITE_CORRUPT);
      }
      return Found::kYes;
    }
  }
  return number <= session.forgotten || remembered_ == 0 ? Found::kForgotten : Found::kNo;
}

void SqliteAnswers::add(const StoreRequest& request, int64_t now_us) {
  const std::string answer = encode_answer(result_of(request));
  write(request.id, {answer}, now_us);
}

void SqliteAnswers::carry_out(AskRequest& request, StoreFailure& failure, int64_t now_us) {
  request.result = WFStoreResult();
  switch (read(request.asked, request.result)) {
    case Found::kYes:
      request.found = true;
      break;
    case Found::kForgotten:
      failure.error = ENODATA;
      failure.message = "the store does not remember requests from so long ago";
      break;
    case Found::kNo:
      write(request.asked, {}, now_us);
      break;
    case Found::kUsedUp:
      break;
  }
}

void SqliteAnswers::know(uint64_t id, int64_t now_us) {
  Session& session = this->session(id);
  if (session.known) {
    return;
  }
  session.known = true;
  session.changed = true;
  session.used_us = next_use(now_us);
  if (meta_.dropping == static_cast<int64_t>(id)) {
    // It has come back. What it asked earlier must not be taken for what it asks now.
    remove_all_.run(id);
    meta_.dropping = 0;
  }
  drop_oldest(id);
}

void SqliteAnswers::write(const WFStoreRequestId& id, const SqliteStatement::Optional& answer,
                          int64_t now_us) {
  if (remembered_ == 0) {
    return;
  }
  const auto number = static_cast<int64_t>(id.number);
  Session& session = this->session(id.session);
  if (!session.known) {
    know(id.session, now_us);
    // The session may have been dropped, and its answers with it.
    session.forgotten = meta_.has_dropped ? number - 1 : 0;
  }
  insert_.run(id.session, id.number, answer);
  session.newest = std::max(session.newest, number);
  session.remembered++;
  session.used_us = next_use(now_us);
  session.changed = true;
  while (session.remembered > remembered_ && connection_.code() == SQLITE_OK) {
    int64_t first = 0;
    {
      SqliteCursor row = first_.find(id.session);
      first = row.next() ? row.integer(0) : number;
    }
    remove_.run(id.session, first);
    session.remembered--;
    session.forgotten = std::max(session.forgotten, first);
  }
}

int64_t SqliteAnswers::next_use(int64_t now_us) {
  if (last_use_us_ == 0) {
    SqliteCursor row = last_use_.find();
    last_use_us_ = row.next() ? row.integer(0) : 0;
  }
  last_use_us_ = std::max(now_us, last_use_us_ + 1);
  return last_use_us_;
}

void SqliteAnswers::drop_oldest(uint64_t kept) {
  if (meta_.dropping != 0) {
    return;
  }
  save_sessions();
  {
    SqliteCursor row = count_sessions_.find();
    if (!row.next() || row.integer(0) <= kMostSessions) {
      return;
    }
  }
  uint64_t oldest = 0;
  {
    SqliteCursor row = oldest_session_.find(kept);
    oldest = row.next() ? row.unsigned_integer(0) : 0;
  }
  remove_session_.run(oldest);
  sessions_.erase(oldest);
  meta_.dropping = static_cast<int64_t>(oldest);
  meta_.has_dropped = true;
}

void SqliteAnswers::save_sessions() {
  for (auto& [id, session] : sessions_) {
    if (session.changed) {
      save_session_.run(id, session.newest, session.remembered, session.forgotten, session.used_us);
      session.changed = false;
    }
  }
}

void SqliteAnswers::save() {
  save_sessions();
  for (int64_t i = 0; meta_.dropping != 0 && i < kDroppedRows; i++) {
    int64_t first = 0;
    {
      SqliteCursor row = first_.find(meta_.dropping);
      if (!row.next()) {
        meta_.dropping = 0;
        return;
      }
      first = row.integer(0);
    }
    remove_.run(meta_.dropping, first);
  }
}

}  // namespace workflow

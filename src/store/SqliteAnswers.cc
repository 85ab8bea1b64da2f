#include "store/SqliteAnswers.h"

#include <algorithm>

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

SqliteAnswers::Found SqliteAnswers::find(const WFStoreRequestId& id, WFStoreResult& result) {
  const Session& session = this->session(id.session);
  const auto number = static_cast<int64_t>(id.number);
  if (!session.known) return meta_.has_dropped || remembered_ == 0 ? Found::kForgotten : Found::kNo;
  if (number <= session.newest) {
    SqliteCursor row = select_.find(id.session, id.number);
    if (row.next()) {
      if (row.is_null(0)) return Found::kUsedUp;
      if (!decode_answer(row.bytes(0), &result)) {
        connection_.note(SQLITE_CORRUPT);
      }
      return Found::kYes;
    }
  }
  return number <= session.forgotten || remembered_ == 0 ? Found::kForgotten : Found::kNo;
}

void SqliteAnswers::know(uint64_t id) {
  Session& session = this->session(id);
  if (session.known) return;
  session.known = true;
  session.changed = true;
  session.used_us = next_use();
  if (meta_.dropping == static_cast<int64_t>(id)) {
    // It has come back. What it asked earlier must not be taken for what it asks now.
    remove_all_.run(id);
    meta_.dropping = 0;
  }
  drop_oldest(id);
}

void SqliteAnswers::keep(const WFStoreRequestId& id, std::optional<std::string>&& answer) {
  if (remembered_ == 0) return;
  const auto number = static_cast<int64_t>(id.number);
  Session& session = this->session(id.session);
  if (!session.known) {
    know(id.session);
    // The session may have been dropped, and its answers with it.
    session.forgotten = meta_.has_dropped ? number - 1 : 0;
  }
  const SqliteStatement::Optional text{answer ? std::string_view(*answer) : std::string_view()};
  insert_.run(id.session, id.number, text);
  session.newest = std::max(session.newest, number);
  session.remembered++;
  session.used_us = next_use();
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

int64_t SqliteAnswers::next_use() {
  if (last_use_us_ == 0) {
    SqliteCursor row = last_use_.find();
    last_use_us_ = row.next() ? row.integer(0) : 0;
  }
  last_use_us_ = std::max(now_us_, last_use_us_ + 1);
  return last_use_us_;
}

void SqliteAnswers::drop_oldest(uint64_t kept) {
  if (meta_.dropping != 0) return;
  save_sessions();
  {
    SqliteCursor row = count_sessions_.find();
    if (!row.next() || row.integer(0) <= kMaxSessions) return;
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

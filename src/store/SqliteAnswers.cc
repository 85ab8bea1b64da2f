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
  Session& session = this->session(id.session);
  const auto number = static_cast<int64_t>(id.number);
  if (!session.known) return meta_.has_dropped || remembered_ == 0 ? Found::kForgotten : Found::kNo;
  if (number <= session.newest) {
    forget_oldest(id.session, session);
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
  added_++;
  session.newest = std::max(session.newest, number);
  session.remembered++;
  session.used_us = next_use();
  session.changed = true;
}

void SqliteAnswers::forget_oldest(uint64_t id, Session& session) {
  const int64_t surplus = session.remembered - remembered_;
  if (surplus <= 0 || remembered_ == 0) return;
  const int64_t last = oldest(id, surplus);
  remove_.run(id, last);
  session.remembered = remembered_;
  session.forgotten = std::max(session.forgotten, last);
  session.changed = true;
}

int64_t SqliteAnswers::oldest(uint64_t id, int64_t n) {
  SqliteCursor row = oldest_.find(id, n - 1);
  return row.next() ? row.integer(0) : 0;
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
  for (auto& [id, session] : sessions_) {
    forget_oldest(id, session);
  }
  save_sessions();
  if (meta_.dropping == 0) return;
  const auto dropping = static_cast<uint64_t>(meta_.dropping);
  if (const int64_t last = oldest(dropping, kDroppedRows + 2 * added_)) {
    remove_.run(dropping, last);
  } else {
    remove_all_.run(dropping);
    meta_.dropping = 0;
    drop_oldest(0);  // others may have become too many meanwhile
  }
}

}  // namespace workflow

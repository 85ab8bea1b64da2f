#include "store/SqliteEnded.h"

#include <algorithm>

#include "store/StoreTime.h"

namespace workflow {

void SqliteEnded::add(std::string_view name, uint64_t timer, unsigned attempts,
                      WFStoreOutcome outcome, int64_t now_us) {
  insert_.run(++meta_.ended, name, timer, static_cast<int>(outcome), now_us, attempts);
  added_++;
}

void SqliteEnded::prune() {
  if (added_ == 0) return;
  int64_t last = meta_.ended - remembered_;
  {
    SqliteCursor row = oldest_.find();
    if (!row.next() || row.integer(0) > last) return;
    last = std::min(last, row.integer(0) + added_ + kOldRows);
  }
  {
    SqliteCursor row = newest_time_.find(last);
    if (row.next()) {
      // Others may have ended in the same microsecond.
      meta_.since_us = std::max(meta_.since_us, row.integer(0) + 1);
    }
  }
  remove_.run(last);
}

WFStoreAnswer SqliteEnded::answer(std::string_view name) {
  WFStoreAnswer answer;
  const int64_t forgotten = meta_.ended - remembered_;
  {
    SqliteCursor row = latest_.find(name, forgotten);
    if (row.next()) {
      answer.verdict = WFStoreVerdict::kDone;
      answer.timer = row.unsigned_integer(0);
      answer.outcome = static_cast<WFStoreOutcome>(row.integer(1));
      answer.when = time_of_us(row.integer(2));
      answer.attempts = static_cast<unsigned>(row.integer(3));
      return answer;
    }
  }
  int64_t since_us = meta_.since_us;
  SqliteCursor row = newest_time_.find(forgotten);
  if (row.next() && !row.is_null(0)) {
    since_us = std::max(since_us, row.integer(0) + 1);
  }
  answer.verdict = WFStoreVerdict::kUnknown;
  answer.when = time_of_us(since_us);
  return answer;
}

}  // namespace workflow

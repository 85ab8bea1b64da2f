#include "store/SqliteMeta.h"

namespace workflow {

bool SqliteMeta::load() {
  SqliteCursor row = select_.find();
  if (!row.next()) return connection_.note(SQLITE_CORRUPT);
  identity = row.unsigned_integer(0);
  fence = row.integer(1);
  timer = row.integer(2);
  ended = row.integer(3);
  commits = row.integer(4);
  stored = row.integer(5);
  since_us = row.integer(6);
  dropping = row.integer(7);
  has_dropped = row.integer(8) != 0;
  return true;
}

bool SqliteMeta::save() {
  return update_.run(fence, timer, ended, commits, stored, since_us, dropping, has_dropped);
}

}  // namespace workflow

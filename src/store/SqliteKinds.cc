#include "store/SqliteKinds.h"

namespace workflow {

int64_t SqliteKinds::find(const std::string& name) {
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  SqliteCursor row = select_.find(name);
  if (!row.next()) return 0;
  keep(name, row.integer(0));
  return row.integer(0);
}

int64_t SqliteKinds::add(const std::string& name) {
  if (const int64_t id = find(name)) return id;
  SqliteCursor row = insert_.find(name);
  if (!row.next()) return 0;
  const int64_t id = row.integer(0);
  keep(name, id);
  while (row.next()) {
  }
  return id;
}

const std::string& SqliteKinds::name(int64_t id) {
  if (const auto known = names_.find(id); known != names_.end()) return known->second;
  std::string name;
  SqliteCursor row = name_of_.find(id);
  if (row.next()) {
    name = row.text(0);
  } else {
    connection_.note(SQLITE_CORRUPT);
  }
  keep(name, id);
  return names_[id];
}

void SqliteKinds::forget() {
  ids_.clear();
  names_.clear();
}

void SqliteKinds::keep(const std::string& name, int64_t id) {
  if (names_.size() >= kMaxKept) {
    forget();
  }
  ids_.emplace(name, id);
  names_.emplace(id, name);
}

}  // namespace workflow

#pragma once

#include <cstdint>
#include <string>

namespace workflow {

// The side file `<store>-reserve`. It occupies room on the disk that is given back when the disk is
// full, so that what ends timers can still be stored. All processes share the file.
// Used by one thread at a time.
class SqliteReserve {
 public:
  static constexpr int64_t kBytes = int64_t{8} * 1024 * 1024;

  explicit SqliteReserve(std::string path) : path_(std::move(path)) {}

  // Occupies the room. Returns 0 or an errno value, and then occupies nothing.
  int make() const;
  void release() const;

 private:
  const std::string path_;
};

}  // namespace workflow

#pragma once

#include <cstdint>
#include <string>

namespace workflow {

// The side file `<store>-reserve`. It occupies room on the disk that is given back when the disk is
// full, so that what ends timers can still be stored. All processes share the file.
// Used by one thread at a time.
class SqliteReserve {
 public:
  SqliteReserve(std::string path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {}

  // Occupies the room. Returns 0 or an errno value, and then occupies nothing.
  int make() const;
  void release() const;

 private:
  const std::string path_;
  const int64_t bytes_;
};

}  // namespace workflow

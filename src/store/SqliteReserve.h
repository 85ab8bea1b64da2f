#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "store/SqliteFile.h"

namespace workflow {

// The side file `<store>-reserve`. It occupies room on the disk that is given back when the disk is
// full, so that what ends timers can still be stored. All processes share the file.
// Used by one thread at a time.
class SqliteReserve {
 public:
  SqliteReserve(std::string path, const SqliteSettings& settings)
      : path_(std::move(path)), bytes_(settings.reserve_bytes), free_bytes_(settings.free_bytes) {}

  // Occupies the room. Returns 0 or an errno value, and then occupies nothing.
  int make() const;
  void release() const;
  // Whether the disk would still have as much room as the reserve takes if it was made now. A disk
  // on which somebody has a quota may say so although that quota is used up.
  bool has_room() const { return free_bytes() >= 2 * bytes_; }
  // How much room the disk has now, as far as it tells.
  int64_t free_bytes() const;
  // Whether this errno value means that there is no room.
  static bool is_full(int error);

 private:
  const std::string path_;
  const int64_t bytes_;
  const std::function<int64_t(const std::string& path)> free_bytes_;
};

}  // namespace workflow

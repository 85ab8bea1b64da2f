// To be preloaded into the programs of the row store, on a directory in memory: syncing a file
// takes EVEN_DISK_US microseconds, and nothing else. So what a store adds to a disk can be compared
// where the real disk is busy with the work of others.

#include <time.h>

#include <cstdlib>

namespace {

int sync_evenly() {
  static const char* const text = std::getenv("EVEN_DISK_US");
  static const long us = text ? std::strtol(text, nullptr, 10) : 0;
  const timespec pause{us / 1'000'000, us % 1'000'000 * 1000};
  nanosleep(&pause, nullptr);
  return 0;
}

}  // namespace

extern "C" int fdatasync(int) {
  return sync_evenly();
}

extern "C" int fsync(int) {
  return sync_evenly();
}

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "support/SyncNote.h"

// Loaded into a redis-server of a test, so that the test knows what a loss of power would leave of
// its files: store/LostPower.h takes the rest away. With SYNCS_NOTED=n only the first n syncs of
// each file are noted: a disk that lies about the later ones. sync_file_range() makes nothing
// durable, so it is left alone. One thread at a time syncs a file.

using redis_test::kSyncNoteEnding;
using redis_test::SyncNote;

static int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

static std::string path_of(int file) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path, sizeof(path));
  return {path, length < 0 ? 0 : static_cast<size_t>(length)};
}

// When the file was written last, by CLOCK_MONOTONIC.
static int64_t written_ns(const struct stat& found) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const timespec& then = found.st_mtim;
  return now_ns() - (int64_t{now.tv_sec} - then.tv_sec) * 1'000'000'000 -
         (now.tv_nsec - then.tv_nsec);
}

// `found` is what the file was when its sync began. A sync without a note counts for nothing.
static void note(int file, const struct stat& found, int64_t began_ns) {
  static const char* const limit = std::getenv("SYNCS_NOTED");
  const int notes =
      open((path_of(file) + kSyncNoteEnding).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (notes < 0) return;
  SyncNote note;
  if (pread(notes, &note, sizeof(note), 0) != static_cast<ssize_t>(sizeof(note))) {
    note = SyncNote{};
  }
  note.syncs++;
  if (limit == nullptr || note.syncs <= std::atoll(limit)) {
    note.bytes = found.st_size;
    note.began_ns = began_ns;
  }
  if (pwrite(notes, &note, sizeof(note), 0) < 0) std::perror("SyncNotes");
  close(notes);
}

static int sync_by(long call, int file) {
  struct stat found {};
  const bool is_file = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  // While a sync waits for its thread the server writes nothing to the file.
  const int64_t began_ns = is_file ? std::min(now_ns(), written_ns(found)) : 0;
  if (syscall(call, file) != 0) return -1;
  if (is_file) {
    note(file, found, began_ns);
  }
  return 0;
}

extern "C" int fsync(int file) {
  return sync_by(SYS_fsync, file);
}
extern "C" int fdatasync(int file) {
  return sync_by(SYS_fdatasync, file);
}

// A file takes its note along. It may have none, but not that of the file whose place it takes.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (renameat(AT_FDCWD, from, AT_FDCWD, to) != 0) return -1;
  const int error = errno;
  const std::string note_of_to = std::string(to) + kSyncNoteEnding;
  if (renameat(AT_FDCWD, (std::string(from) + kSyncNoteEnding).c_str(), AT_FDCWD,
               note_of_to.c_str()) != 0) {
    unlink(note_of_to.c_str());
  }
  errno = error;
  return 0;
}

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

// Loaded into a redis-server of a test, so that its clock is ahead by CLOCK_AHEAD seconds, or by as
// many as the file CLOCK_AHEAD_FILE contains at the time: an int64_t that the test may change.

static const std::atomic<int64_t>* mapped_seconds() {
  const char* const path = std::getenv("CLOCK_AHEAD_FILE");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<const std::atomic<int64_t>*>(memory);
}

extern "C" int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  static const char* const text = std::getenv("CLOCK_AHEAD");
  static const long ahead = text == nullptr ? 0 : std::atol(text);
  static const std::atomic<int64_t>* const mapped = mapped_seconds();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec + ahead + (mapped == nullptr ? 0 : mapped->load());
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

#include <sys/time.h>

#include <cstdlib>
#include <ctime>

// Loaded into a redis-server of a test, so that its clock is ahead by CLOCK_AHEAD seconds.

extern "C" int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  static const char* const text = std::getenv("CLOCK_AHEAD");
  static const long ahead = text == nullptr ? 0 : std::atol(text);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec + ahead;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

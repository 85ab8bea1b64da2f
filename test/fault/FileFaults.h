#pragma once

#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

#include "fault/Interrupts.h"
#include "support/RealFunction.h"
#include "support/ThreadFaults.h"

// System calls on files and functions of liburing that fail when a test says so. Included by the
// one source file of a program: its definitions stand before those of the libraries.

namespace fault {

// What setting up a ring answers instead; 0: as it is.
inline std::atomic<int> ring_error{0};
// The features and operations that the kernel seems not to have.
inline std::atomic<unsigned> missing_features{0};
inline std::atomic<int> missing_opcode{-1};

// One submission in so many fails with submit_error, negated; 0: none.
inline std::atomic<unsigned> submit_fails_one_in{0};
inline std::atomic<int> submit_error{0};
inline std::atomic<int> submit_failures{0};

// One completion in so many gets this error instead of its result; 0: none.
inline std::atomic<unsigned> spoil_one_in{0};
inline std::atomic<int> spoil_error{0};
inline std::atomic<int> spoilt{0};

using test_support::threads_left;

inline void spoil_completions(struct io_uring* ring) {
  unsigned head;
  struct io_uring_cqe* cqe;
  io_uring_for_each_cqe(ring, head, cqe) {
    // Without data it is no operation; negative results may be spoilt ones already.
    if (cqe->user_data != 0 && cqe->res >= 0 && one_in(spoil_one_in)) {
      cqe->res = -spoil_error;
      spoilt++;
    }
  }
}

}  // namespace fault

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto call = test_support::real_function<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return fault::is_interrupted_at_random() ? -1 : call(path, flags, mode);
}

ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  static const auto call = test_support::real_function<ssize_t(int, void*, size_t, off_t)>("pread");
  return fault::is_interrupted_at_random() ? -1 : call(fd, buffer, size, offset);
}

ssize_t pwrite(int fd, const void* buffer, size_t size, off_t offset) {
  static const auto call =
      test_support::real_function<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return fault::is_interrupted_at_random() ? -1 : call(fd, buffer, size, offset);
}

ssize_t preadv(int fd, const struct iovec* vector, int count, off_t offset) {
  static const auto call =
      test_support::real_function<ssize_t(int, const struct iovec*, int, off_t)>("preadv");
  return fault::is_interrupted_at_random() ? -1 : call(fd, vector, count, offset);
}

ssize_t pwritev(int fd, const struct iovec* vector, int count, off_t offset) {
  static const auto call =
      test_support::real_function<ssize_t(int, const struct iovec*, int, off_t)>("pwritev");
  return fault::is_interrupted_at_random() ? -1 : call(fd, vector, count, offset);
}

int fsync(int fd) {
  static const auto call = test_support::real_function<int(int)>("fsync");
  return fault::is_interrupted_at_random() ? -1 : call(fd);
}

int fdatasync(int fd) {
  static const auto call = test_support::real_function<int(int)>("fdatasync");
  return fault::is_interrupted_at_random() ? -1 : call(fd);
}

int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                               struct io_uring_params* params) {
  static const auto call =
      test_support::real_function<int(unsigned, struct io_uring*, struct io_uring_params*)>(
          "io_uring_queue_init_params");
  if (fault::ring_error != 0) return -fault::ring_error;
  const int result = call(entries, ring, params);
  params->features &= ~fault::missing_features;
  return result;
}

struct io_uring_probe* io_uring_get_probe_ring(struct io_uring* ring) {
  static const auto call = test_support::real_function<struct io_uring_probe*(struct io_uring*)>(
      "io_uring_get_probe_ring");
  struct io_uring_probe* probe = call(ring);
  if (probe && fault::missing_opcode >= 0) {
    probe->ops[fault::missing_opcode].flags = 0;
  }
  return probe;
}

int io_uring_submit_and_wait(struct io_uring* ring, unsigned wait) {
  static const auto call =
      test_support::real_function<int(struct io_uring*, unsigned)>("io_uring_submit_and_wait");
  if (fault::one_in(fault::submit_fails_one_in)) {
    fault::submit_failures++;
    return -fault::submit_error;
  }
  const int result = call(ring, wait);
  fault::spoil_completions(ring);
  return result;
}

}  // extern "C"

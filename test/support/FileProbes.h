#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <ostream>
#include <string>

#include "kernel/FileIo.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "support/Text.h"
#include "util/UniqueFd.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {

inline const char* name_of(FileBackend backend) {
  return backend == FileBackend::kRing ? "Ring" : "Threads";
}

inline void PrintTo(FileBackend backend, std::ostream* out) {
  *out << name_of(backend);
}

}  // namespace workflow

namespace probes {

using test_support::text_of;
using workflow::FileBackend;
using workflow::UniqueFd;

// How a file task ended.
struct FileOutcome {
  int state = WFT_STATE_UNDEFINED;
  int error = 0;
  long retval = 0;
  bool on_framework_thread = false;

  bool operator==(const FileOutcome& other) const {
    return state == other.state && error == other.error && retval == other.retval;
  }
};

inline std::ostream& operator<<(std::ostream& out, const FileOutcome& outcome) {
  return out << "state " << outcome.state << ", error " << outcome.error << ", retval "
             << outcome.retval;
}

inline FileOutcome success(long retval) {
  return {WFT_STATE_SUCCESS, 0, retval, true};
}
inline FileOutcome failure(int error) {
  return {WFT_STATE_SYS_ERROR, error, -1, true};
}
inline FileOutcome aborted() {
  return {WFT_STATE_ABORTED, 0, -1, true};
}

// Returns the outcome of a task whose system call has just returned this.
inline FileOutcome as_outcome(long returned) {
  return returned < 0 ? failure(errno) : success(returned);
}

template <class Task>
FileOutcome outcome_of(const Task* task) {
  return {task->get_state(), task->get_error(), task->get_retval(),
          workflow::ThreadContext::current().on_framework_thread()};
}

// Replaces the callback of the task, starts the task, and waits for the callback. The test fails if
// that never comes.
template <class Task>
FileOutcome run_file_task(Task* task) {
  FileOutcome outcome;
  test_support::Tally ended;
  task->set_callback([&](Task* self) {
    outcome = outcome_of(self);
    ended.add();
  });
  task->start();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(outcome.on_framework_thread);
  return outcome;
}

inline FileOutcome pread(int fd, void* buf, size_t count, off_t offset) {
  return run_file_task(WFTaskFactory::create_pread_task(fd, buf, count, offset, nullptr));
}
inline FileOutcome pwrite(int fd, const void* buf, size_t count, off_t offset) {
  return run_file_task(WFTaskFactory::create_pwrite_task(fd, buf, count, offset, nullptr));
}
inline FileOutcome preadv(int fd, const struct iovec* iov, int iovcnt, off_t offset) {
  return run_file_task(WFTaskFactory::create_preadv_task(fd, iov, iovcnt, offset, nullptr));
}
inline FileOutcome pwritev(int fd, const struct iovec* iov, int iovcnt, off_t offset) {
  return run_file_task(WFTaskFactory::create_pwritev_task(fd, iov, iovcnt, offset, nullptr));
}
inline FileOutcome fsync(int fd) {
  return run_file_task(WFTaskFactory::create_fsync_task(fd, nullptr));
}
inline FileOutcome fdatasync(int fd) {
  return run_file_task(WFTaskFactory::create_fdatasync_task(fd, nullptr));
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// The base of tests of file tasks, which run once for each backend. If the kernel offers no
// io_uring, both backends are threads, and the facts hold all the same.
class OnEachBackend : public testing::TestWithParam<FileBackend> {
 protected:
  explicit OnEachBackend(int max_events = 4096) {
    workflow::Runtime::configure({.files = {.max_events = max_events, .backend = GetParam()}});
  }

  std::string path(const std::string& name = "file") const { return dir_.path(name); }
  std::string make_file(const std::string& content, const std::string& name = "file") const {
    write_file(path(name), content);
    return path(name);
  }
  static UniqueFd open(const std::string& path, int flags) {
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
    EXPECT_TRUE(fd.valid()) << path << ": " << errno;
    return fd;
  }

 private:
  test_support::TempDir dir_;
};

inline std::string backend_name(const testing::TestParamInfo<FileBackend>& info) {
  return workflow::name_of(info.param);
}

}  // namespace probes

#define INSTANTIATE_ON_EACH_BACKEND(suite)                                                       \
  INSTANTIATE_TEST_SUITE_P(                                                                      \
      On, suite, testing::Values(workflow::FileBackend::kRing, workflow::FileBackend::kThreads), \
      probes::backend_name)

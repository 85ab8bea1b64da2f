#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/FileProbes.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"

// Random operations with good and bad arguments on descriptors of many kinds, each done twice: by
// the system call on one of two equal descriptors, by a task on the other. Result, errno and data
// must be equal.

namespace {

using namespace probes;
using test_support::TestRandom;

// Memory that ends where nothing is mapped.
class GuardedBuffer {
 public:
  static constexpr size_t kSize = size_t{1} << 20;

  GuardedBuffer() {
    void* all =
        ::mmap(nullptr, kSize + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at_ = static_cast<char*>(all);
    ::mprotect(at_ + kSize, kGuard, PROT_NONE);
  }
  ~GuardedBuffer() { ::munmap(at_, kSize + kGuard); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  char* data() { return at_; }

 private:
  static constexpr size_t kGuard = 65536;
  char* at_;
};

struct Operation {
  int kind = 0;  // pread, pwrite, preadv, pwritev, fsync, fdatasync
  size_t skip = 0;
  size_t count = 0;
  off_t offset = 0;
  int iovcnt = 0;
  bool bad_pointer = false;
  std::vector<std::pair<size_t, size_t>> parts;  // offset in the buffer, size

  bool writes() const { return kind == 1 || kind == 3; }
  bool vector() const { return kind == 2 || kind == 3; }
};

std::vector<struct iovec> vector_of(const Operation& operation, char* buffer) {
  std::vector<struct iovec> iov;
  for (const auto& [at, size] : operation.parts) {
    iov.push_back({buffer + at, size});
  }
  return iov;
}

FileOutcome by_call(const Operation& operation, int fd, char* buffer) {
  char* const at = operation.bad_pointer ? reinterpret_cast<char*>(8) : buffer + operation.skip;
  const std::vector<struct iovec> vector = vector_of(operation, buffer);
  const auto* iov =
      operation.bad_pointer ? reinterpret_cast<const struct iovec*>(8) : vector.data();
  switch (operation.kind) {
    case 0:
      return as_outcome(::pread(fd, at, operation.count, operation.offset));
    case 1:
      return as_outcome(::pwrite(fd, at, operation.count, operation.offset));
    case 2:
      return as_outcome(::preadv(fd, iov, operation.iovcnt, operation.offset));
    case 3:
      return as_outcome(::pwritev(fd, iov, operation.iovcnt, operation.offset));
    case 4:
      return as_outcome(::fsync(fd));
    default:
      return as_outcome(::fdatasync(fd));
  }
}

FileOutcome by_task(const Operation& operation, int fd, char* buffer) {
  char* const at = operation.bad_pointer ? reinterpret_cast<char*>(8) : buffer + operation.skip;
  const std::vector<struct iovec> vector = vector_of(operation, buffer);
  const auto* iov =
      operation.bad_pointer ? reinterpret_cast<const struct iovec*>(8) : vector.data();
  switch (operation.kind) {
    case 0:
      return probes::pread(fd, at, operation.count, operation.offset);
    case 1:
      return probes::pwrite(fd, at, operation.count, operation.offset);
    case 2:
      return probes::preadv(fd, iov, operation.iovcnt, operation.offset);
    case 3:
      return probes::pwritev(fd, iov, operation.iovcnt, operation.offset);
    case 4:
      return probes::fsync(fd);
    default:
      return probes::fdatasync(fd);
  }
}

std::ostream& operator<<(std::ostream& out, const Operation& operation) {
  out << "kind " << operation.kind << " skip " << operation.skip << " count " << operation.count
      << " offset " << operation.offset << " iovcnt " << operation.iovcnt
      << (operation.bad_pointer ? " bad pointer" : "");
  return out;
}

class FileTaskDifference : public probes::OnEachBackend {
 protected:
  // Two descriptors that are equal, or one that nothing changes.
  struct Pair {
    std::string name;
    UniqueFd for_call;
    UniqueFd for_task;
    int call_fd() const { return for_call.get(); }
    int task_fd() const { return for_task.valid() ? for_task.get() : for_call.get(); }
  };

  static constexpr size_t kFileSize = 600'000;

  FileTaskDifference() : random_(test_support::test_seed()) {
    for (size_t i = 0; i < kFileSize; i++) {
      content_ += static_cast<char>(random_.below(256));
    }
    add_files();
    add_others();
  }

  void add_file(const std::string& name, int flags) {
    make_file(content_, name + ".call");
    make_file(content_, name + ".task");
    pairs_.push_back({name, open(path(name + ".call"), flags), open(path(name + ".task"), flags)});
    if ((flags & O_DIRECT) == 0) {
      files_.push_back(name);
    }
  }

  void add_files() {
    add_file("rw", O_RDWR);
    add_file("ro", O_RDONLY);
    add_file("wo", O_WRONLY);
    add_file("append", O_RDWR | O_APPEND);
    add_file("nonblock", O_RDWR | O_NONBLOCK);
    add_file("dsync", O_RDWR | O_DSYNC);
    add_file("direct", O_RDWR | O_DIRECT);
    add_file("path", O_PATH);
  }

  void add(const std::string& name, int fd) { pairs_.push_back({name, UniqueFd(fd), UniqueFd()}); }

  void add_others() {
    add("directory", ::open(path("").c_str(), O_RDONLY | O_DIRECTORY));
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    add("pipe read", ends[0]);
    add("pipe write", ends[1]);
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    add("socket", ends[0]);
    add("other socket", ends[1]);
    add("eventfd", ::eventfd(1, 0));
    add("epoll", ::epoll_create1(0));
    add("null", ::open("/dev/null", O_RDWR));
    add("zero", ::open("/dev/zero", O_RDWR));
    add("full", ::open("/dev/full", O_RDWR));
    add("version", ::open("/proc/version", O_RDONLY));
    add("closed", -1);
    add("never opened", 9999);
    const int sealed = ::memfd_create("sealed", MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(sealed, 1000), 0);
    ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
    add("sealed", sealed);
  }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_.below(values.size())];
  }

  size_t random_count() {
    if (!random_.one_in(8)) {
      return random_.below(one_of<uint64_t>({10, 5000, 300'000, GuardedBuffer::kSize}));
    }
    return one_of<size_t>({0, 4096, 65536, 0x7fffefff, 0x7ffff000, 0x7ffff001, 0x7fffffff,
                           0x80000000, 0xffffffff, size_t{1} << 40, SIZE_MAX / 2, SIZE_MAX / 2 + 1,
                           SIZE_MAX});
  }

  off_t random_offset(bool writes) {
    if (!random_.one_in(8)) {
      const auto offset = static_cast<off_t>(random_.below(kFileSize + 5000));
      return random_.one_in(3) ? offset / 4096 * 4096 : offset;
    }
    if (random_.one_in(2) && !writes) {
      return one_of<off_t>({off_t{1} << 31, off_t{1} << 32, off_t{1} << 40, off_t{1} << 50});
    }
    return one_of<off_t>({-1, -2, -4096, INT64_MIN, INT64_MAX, INT64_MAX - 1, INT64_MAX - 4095});
  }

  Operation random_operation() {
    Operation operation;
    operation.kind = static_cast<int>(random_.below(random_.one_in(4) ? 6 : 4));
    operation.bad_pointer = random_.one_in(50);
    operation.skip = random_.one_in(2) ? 0 : random_.below(8192);
    operation.count = random_count();
    if (random_.one_in(3)) {
      operation.count = operation.count / 4096 * 4096;
    }
    operation.offset = random_offset(operation.writes());
    if (operation.vector()) {
      operation.iovcnt = random_.one_in(6) ? one_of({-1, 0, 1, IOV_MAX, IOV_MAX + 1, INT_MAX})
                                           : static_cast<int>(random_.below(8));
      const int parts = std::clamp(operation.iovcnt, 0, IOV_MAX + 1);
      for (int i = 0; i < parts; i++) {
        const size_t at = random_.below(GuardedBuffer::kSize);
        const size_t size = random_.one_in(300) ? random_count() : random_.below(20'000);
        operation.parts.emplace_back(at, size);
      }
    }
    if (test_support::kSanitized) {
      make_harmless(operation);
    }
    return operation;
  }

  // Sanitizers look at all the memory that a system call is given.
  static void make_harmless(Operation& operation) {
    operation.bad_pointer = false;
    operation.count = std::min(operation.count, GuardedBuffer::kSize - operation.skip);
    for (auto& [at, size] : operation.parts) {
      size = std::min(size, GuardedBuffer::kSize - at);
    }
    operation.iovcnt = std::min(operation.iovcnt, static_cast<int>(operation.parts.size()));
  }

  void fill(GuardedBuffer& one, GuardedBuffer& other) {
    for (size_t i = 0; i < GuardedBuffer::kSize; i += sizeof(uint64_t)) {
      const uint64_t bits = random_.below(UINT64_MAX);
      std::memcpy(one.data() + i, &bits, sizeof bits);
    }
    std::memcpy(other.data(), one.data(), GuardedBuffer::kSize);
  }

  // What a direct write has left is compared at once: a later one that fails may have written a
  // part of what it was given, and which part depends on the disk.
  static void expect_equal_on_disk(const Pair& pair, off_t offset, size_t size) {
    GuardedBuffer of_call;
    GuardedBuffer of_task;
    size = std::min(size, GuardedBuffer::kSize);
    const ssize_t got = ::pread(pair.call_fd(), of_call.data(), size, offset);
    ASSERT_EQ(got, static_cast<ssize_t>(size)) << errno;
    ASSERT_EQ(::pread(pair.task_fd(), of_task.data(), size, offset), got) << errno;
    EXPECT_EQ(std::memcmp(of_call.data(), of_task.data(), size), 0) << offset << " " << size;
  }

  TestRandom random_;
  std::string content_;
  std::vector<Pair> pairs_;
  std::vector<std::string> files_;  // those whose content is compared at the end
};
INSTANTIATE_ON_EACH_BACKEND(FileTaskDifference);

}  // namespace

TEST_P(FileTaskDifference, ThereIsNoneToTheSystemCalls) {
  GuardedBuffer call_buffer;
  GuardedBuffer task_buffer;
  fill(call_buffer, task_buffer);
  const auto steps =
      test_support::env_number("WORKFLOW_FILE_STEPS", test_support::kSanitized ? 500 : 3000);
  for (int64_t step = 0; step < steps; step++) {
    const Pair& pair = pairs_[random_.below(pairs_.size())];
    const Operation operation = random_operation();
    const FileOutcome expected = by_call(operation, pair.call_fd(), call_buffer.data());
    const FileOutcome outcome = by_task(operation, pair.task_fd(), task_buffer.data());
    ASSERT_EQ(outcome, expected) << "step " << step << " on " << pair.name << ": " << operation;
    if (pair.name == "direct") {
      // Behind the end of the file the buffer holds what the disk does.
      std::memcpy(task_buffer.data(), call_buffer.data(), GuardedBuffer::kSize);
      if (operation.writes() && expected.retval > 0) {
        expect_equal_on_disk(pair, operation.offset, static_cast<size_t>(expected.retval));
      }
    } else if (!operation.writes()) {
      ASSERT_EQ(std::memcmp(call_buffer.data(), task_buffer.data(), GuardedBuffer::kSize), 0)
          << "step " << step << " on " << pair.name << ": " << operation;
    }
  }
  for (const std::string& name : files_) {
    EXPECT_TRUE(probes::text_of(path(name + ".call")) == probes::text_of(path(name + ".task")))
        << name;
  }
}

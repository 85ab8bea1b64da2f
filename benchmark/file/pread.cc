// Row file: what reading a block of a file costs, as tasks and as the bare system call. Links:
// workflow. WORKFLOW_FILE_IO in the environment selects the backend. The peer of a line is the one
// that was in use: `ours` is io_uring, `threads` the threads that stand in for it.
//
// pread_alone: the next read is started when one has ended. pread_together: --outstanding reads at
// a time, each callback starts the next. Blocks are at random places of a file of --file-mb, which
// is in the page cache (--direct=0) or read past it (--direct=1). --n is how many are read, and
// --alone how many of them one after the other.

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#include <workflow/WFFacilities.h>
#include <workflow/WFTaskFactory.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/Measure.h"

namespace bench {
namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// The file that is read. It has no name any more, so it is gone when the program has ended.
class Blocks {
 public:
  Blocks(const std::string& directory, size_t bytes, size_t block, bool direct)
      : block_(block), count_(bytes / block), is_direct_(direct) {
    std::string path = directory + "/workflow-bench-XXXXXX";
    const int fd = ::mkstemp(path.data());
    if (fd < 0) fail(directory.c_str());
    fd_ = ::open(path.c_str(), O_RDONLY | (direct ? O_DIRECT : 0));
    const int error = errno;
    ::unlink(path.c_str());
    errno = error;
    if (fd_ < 0) fail("open");
    const std::vector<char> zeros(block, 'z');
    for (size_t i = 0; i < count_; ++i) {
      if (::write(fd, zeros.data(), block) != static_cast<ssize_t>(block)) fail("write");
    }
    ::fsync(fd);
    ::close(fd);
  }
  ~Blocks() { ::close(fd_); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  int fd() const { return fd_; }
  bool is_direct() const { return is_direct_; }
  size_t block() const { return block_; }
  off_t offset(uint64_t random) const { return static_cast<off_t>(random % count_ * block_); }

 private:
  const size_t block_;
  const size_t count_;
  const bool is_direct_;
  int fd_ = -1;
};

void* aligned(size_t bytes) {
  return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

// After the first file task: what carries file operations out.
const char* backend() {
  const char* found = "threads";
  DIR* const threads = ::opendir("/proc/self/task");
  while (const dirent* const thread = ::readdir(threads)) {
    std::ifstream name("/proc/self/task/" + std::string(thread->d_name) + "/comm");
    std::string text;
    if (std::getline(name, text) && text == "wf-file-ring") found = "ours";
  }
  ::closedir(threads);
  return found;
}

template <class Work>
void measure(const char* way, const char* peer, const Blocks& blocks, size_t n, Work work) {
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  work();
  const int64_t wall_ns = now_ns() - begin_ns;
  Line(way, peer)
      .add("direct", int64_t{blocks.is_direct()})
      .add("n", n)
      .add("ns", per_op(wall_ns, n))
      .add("per_s", static_cast<double>(kNsPerSecond) / per_op(wall_ns, n))
      .add("cpu_ns", per_op(process_cpu_ns() - cpu_before, n))
      .print();
}

void read_bare(const Blocks& blocks, size_t n) {
  void* const buffer = aligned(blocks.block());
  measure("pread_alone", "bare", blocks, n, [&] {
    Random random(1);
    for (size_t i = 0; i < n; ++i) {
      if (::pread(blocks.fd(), buffer, blocks.block(), blocks.offset(random.next())) < 0) {
        fail("pread");
      }
    }
  });
  std::free(buffer);
}

// Reads in a chain: each callback starts the next.
class Chain {
 public:
  Chain(const Blocks& blocks, std::atomic<int64_t>& left, WFFacilities::WaitGroup& ended,
        uint64_t seed)
      : blocks_(blocks), left_(left), ended_(ended), random_(seed) {
    buffer_ = aligned(blocks.block());
  }
  ~Chain() { std::free(buffer_); }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void next() {
    if (left_.fetch_sub(1, std::memory_order_relaxed) <= 0) {
      ended_.done();
      return;
    }
    WFTaskFactory::create_pread_task(blocks_.fd(), buffer_, blocks_.block(),
                                     blocks_.offset(random_.next()),
                                     [this](WFFileIOTask* task) {
                                       if (task->get_state() != WFT_STATE_SUCCESS) std::abort();
                                       next();
                                     })
        ->start();
  }

 private:
  const Blocks& blocks_;
  std::atomic<int64_t>& left_;
  WFFacilities::WaitGroup& ended_;
  Random random_;
  void* buffer_;
};

void read_by_tasks(const char* way, const char* peer, const Blocks& blocks, size_t n,
                   size_t outstanding) {
  std::vector<std::unique_ptr<Chain>> chains;
  std::atomic<int64_t> left(static_cast<int64_t>(n));
  WFFacilities::WaitGroup ended(static_cast<int>(outstanding));
  for (size_t i = 0; i < outstanding; ++i) {
    chains.push_back(std::make_unique<Chain>(blocks, left, ended, i));
  }
  measure(way, peer, blocks, n, [&] {
    for (const auto& chain : chains) {
      chain->next();
    }
    ended.wait();
  });
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const size_t n = options.count("n", 200'000);
  const bench::Blocks blocks(options.text("directory", "."), options.count("file-mb", 64) << 20,
                             options.count("block", 4096), options.count("direct", 0) != 0);
  const size_t alone = options.count("alone", n);
  bench::read_bare(blocks, alone);
  bench::read_by_tasks("pread_warm_up", "any", blocks, 100, 1);
  const char* const peer = bench::backend();
  bench::read_by_tasks("pread_alone", peer, blocks, alone, 1);
  bench::read_by_tasks("pread_together", peer, blocks, n, options.count("outstanding", 64));
  return 0;
}

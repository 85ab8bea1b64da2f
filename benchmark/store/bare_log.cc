// The rows schedule and commits of common/StoreRows.h without a store: appends to a file, and
// fdatasync. What no store on this disk can surpass. Links nothing.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/Measure.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

class BareLog {
 public:
  static constexpr const char* kPeer = "append";

  explicit BareLog(const std::string& file)
      : fd_(::open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fail_row(file + ": " + std::strerror(errno));
  }
  ~BareLog() { ::close(fd_); }
  BareLog(const BareLog&) = delete;
  BareLog& operator=(const BareLog&) = delete;

  void schedule(size_t first, size_t n, size_t callers, Due) {
    for (size_t i = 0; i < n; i += callers) {
      commit(first + i, std::min(callers, n - i));
    }
  }

  void commit(size_t first, size_t n) {
    std::string records;
    for (size_t i = first; i < first + n; ++i) {
      records += stored_name(i) + stored_payload() + '\n';
    }
    if (::write(fd_, records.data(), records.size()) != static_cast<ssize_t>(records.size()) ||
        ::fdatasync(fd_) != 0) {
      fail_row(std::string("append: ") + std::strerror(errno));
    }
  }

  void cancel(size_t, size_t) { fail_row("a bare log has no timers to cancel"); }
  void take(size_t, size_t) { fail_row("a bare log has no timers to take"); }
  int64_t log_bytes() const { return ::lseek(fd_, 0, SEEK_CUR); }

 private:
  const int fd_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const bench::OwnDirectory directory(options.text("directory", "."));
  bench::BareLog log(directory.path() + "/log");
  bench::run_store_row(log, options);
  return 0;
}

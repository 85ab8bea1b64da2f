#pragma once

#include <atomic>
#include <cerrno>

#include "kernel/FileOperation.h"
#include "support/Tally.h"

namespace test_support {

// An operation that notes when it begins and how it ends.
class FileProbe : public workflow::FileOperation {
 public:
  explicit FileProbe(const workflow::FileRequest& request = {}) : request_(request) {}
  ~FileProbe() override = default;

  // The first thing that is asked of one that begins.
  workflow::FileRequest request() const final {
    begun_.add();
    return request_;
  }
  void finished(long result, workflow::RunnableList&) final {
    result_ = result;
    ended_.add();
  }
  void aborted(workflow::RunnableList&) final {
    aborted_ = true;
    finished(-ECANCELED - 1000, unused_);
  }
  int end_reason() const final { return reason_; }
  void end_early() { reason_ = ETIMEDOUT; }

  bool wait_until_begun() const { return begun_.wait_for(1); }
  bool wait() const { return ended_.wait_for(1); }
  size_t ends() const { return ended_.count(); }
  long result() const { return result_; }
  bool was_aborted() const { return aborted_; }

 protected:
  workflow::FileRequest request_;

 private:
  mutable Tally begun_;
  Tally ended_;
  workflow::RunnableList unused_;
  std::atomic<int> reason_{0};
  long result_ = 0;
  bool aborted_ = false;
};

}  // namespace test_support

#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "util/UniqueFd.h"

namespace store_test {

// A number in a file that several processes have mapped, so that one tells the others at once, in
// mid-load, what is to go wrong with them. It begins as 0. Thread-safe.
class Dial {
 public:
  explicit Dial(const std::string& path) {
    const workflow::UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file.valid() || ::ftruncate(file.get(), sizeof(Number)) != 0) return;
    void* const memory =
        ::mmap(nullptr, sizeof(Number), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    number_ = memory == MAP_FAILED ? nullptr : static_cast<Number*>(memory);
  }
  ~Dial() {
    if (number_ != nullptr) {
      ::munmap(number_, sizeof(Number));
    }
  }
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

  void set(int64_t value) { *number_ = value; }
  int64_t get() const { return *number_; }

 private:
  using Number = std::atomic<int64_t>;
  static_assert(Number::is_always_lock_free);

  Number* number_ = nullptr;
};

}  // namespace store_test

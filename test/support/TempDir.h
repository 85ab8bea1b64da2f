#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace test_support {

// A directory of its own for one test, removed with all that is in it.
class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }

 protected:
  explicit TempDir(const std::filesystem::path& parent) {
    std::string name = (parent / "workflow-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data()) ? name : "";
  }

 private:
  std::string path_;
};

// In memory where there is /dev/shm. Most tests of stores are about the order of operations and not
// about disks, which may be slow.
class FastDir : public TempDir {
 public:
  FastDir()
      : TempDir(::access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                                : std::filesystem::temp_directory_path()) {}
};

}  // namespace test_support

#include "store/FileStatus.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "support/TempDir.h"
#include "util/UniqueFd.h"

namespace workflow {
namespace {

class FileStatusTest : public testing::Test {
 protected:
  UniqueFd create(const std::string& path, size_t bytes) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    EXPECT_TRUE(file.valid());
    EXPECT_EQ(::write(file.get(), std::string(bytes, 'x').data(), bytes),
              static_cast<ssize_t>(bytes));
    return file;
  }

  const test_support::TempDir directory_;
  const std::string path_ = directory_.path("file");
};

TEST_F(FileStatusTest, SaysWhatStatSays) {
  const UniqueFd file = create(path_, 123);
  struct stat expected = {};
  ASSERT_EQ(::stat(path_.c_str(), &expected), 0);

  FileStatus by_path;
  ASSERT_EQ(by_path.read(path_), 0);
  EXPECT_EQ(by_path.device, expected.st_dev);
  EXPECT_EQ(by_path.inode, expected.st_ino);
  EXPECT_EQ(by_path.bytes, 123);

  FileStatus by_descriptor;
  ASSERT_EQ(by_descriptor.read(file.get()), 0);
  EXPECT_TRUE(by_descriptor.is_same_file(by_path));
  EXPECT_EQ(by_descriptor.bytes, 123);
}

TEST_F(FileStatusTest, AFileThatReplacesAnotherIsNotTheSame) {
  const UniqueFd old = create(path_, 1);
  const UniqueFd replacement = create(path_ + "-new", 1);
  FileStatus before;
  ASSERT_EQ(before.read(path_), 0);
  ASSERT_EQ(::rename((path_ + "-new").c_str(), path_.c_str()), 0);
  FileStatus after;
  ASSERT_EQ(after.read(path_), 0);
  EXPECT_FALSE(after.is_same_file(before));
  FileStatus opened;
  ASSERT_EQ(opened.read(old.get()), 0);
  EXPECT_TRUE(opened.is_same_file(before));
}

TEST_F(FileStatusTest, ErrorsAreReturnedAndChangeNothing) {
  FileStatus status;
  EXPECT_EQ(status.read(path_), ENOENT);
  EXPECT_EQ(status.read(-1), EBADF);
  EXPECT_EQ(status.inode, 0U);
}

}  // namespace
}  // namespace workflow

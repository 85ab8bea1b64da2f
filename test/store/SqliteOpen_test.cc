#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "store/RealDisk.h"
#include "store/SqliteFile.h"
#include "store/SqlitePlace.h"
#include "store/SqliteSchema.h"
#include "store/SqliteSeals.h"
#include "support/Descriptors.h"
#include "support/InChild.h"
#include "support/SqliteKit.h"
#include "support/TempDir.h"

namespace test_support {
namespace {

class SqliteOpen : public ::testing::Test {
 protected:
  // Opens the store, and returns the error.
  int open(const workflow::SqliteSettings& settings = {}) {
    backend_.reset();
    int error = 0;
    message_.clear();
    backend_ = open_backend(path_, options_, settings, &message_, &error);
    EXPECT_EQ(error == 0, backend_ != nullptr);
    EXPECT_EQ(error == 0, message_.empty()) << message_;
    EXPECT_EQ(message_.find('\n'), std::string::npos);
    return error;
  }

  bool says(const std::string& text) const { return message_.find(text) != std::string::npos; }

  // Changes the file by SQL, through the seals.
  void change(const char* sql) {
    workflow::SqliteConnection connection;
    connection.open(path_, SQLITE_OPEN_READWRITE, workflow::SqliteSeals::over(nullptr));
    connection.run(sql);
    EXPECT_EQ(connection.code(), SQLITE_OK) << connection.message();
  }

  FastDir directory_;
  SetClock clock_;
  std::string path_ = directory_.path("timers");
  workflow::StoreBackendOptions options_ = options_of(clock_);
  std::unique_ptr<workflow::SqliteBackend> backend_;
  std::string message_;
};

TEST_F(SqliteOpen, AMissingDirectoryOrStoreIsNamed) {
  options_.create = false;
  EXPECT_EQ(open(), ENOENT);
  EXPECT_TRUE(says(path_)) << message_;
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path(".")));
  options_.create = true;
  path_ = directory_.path("missing/timers");
  EXPECT_EQ(open(), ENOENT);
  EXPECT_TRUE(says(directory_.path("missing"))) << message_;
}

TEST_F(SqliteOpen, ARelativePathStaysWhereItWasWhenTheDirectoryChanges) {
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path("."));
  path_ = "timers";
  EXPECT_EQ(open(), 0) << message_;
  std::filesystem::current_path(before);
  carry_out(*backend_, schedule("tea", clock_.us));
  EXPECT_EQ(backend_->reopen(&message_), 0) << message_;
  EXPECT_EQ(carry_out(*backend_, workflow::CountRequest{}).count, 1U);
  EXPECT_TRUE(std::filesystem::exists(directory_.path("timers-queue")));
}

TEST_F(SqliteOpen, ASymbolicLinkLeadsToTheSameStore) {
  ASSERT_EQ(open(), 0);
  carry_out(*backend_, schedule("tea", clock_.us));
  std::filesystem::create_directory(directory_.path("other"));
  std::filesystem::create_symlink(path_, directory_.path("other/link"));
  path_ = directory_.path("other/link");
  ASSERT_EQ(open(), 0);
  EXPECT_EQ(carry_out(*backend_, workflow::CountRequest{}).count, 1U);
  EXPECT_FALSE(std::filesystem::exists(directory_.path("other/link-queue")));
}

TEST_F(SqliteOpen, ASymbolicLinkThatLeadsNowhereIsNamed) {
  std::filesystem::create_symlink(directory_.path("missing"), path_);
  EXPECT_EQ(open(), ENOENT);
  EXPECT_TRUE(says(path_ + ": a symbolic link")) << message_;
  EXPECT_FALSE(std::filesystem::exists(path_ + "-queue"));
}

// Each name has a log of its own, so two processes would overwrite what the other has stored.
TEST_F(SqliteOpen, AFileOfTwoNamesIsRefused) {
  for (const char* parameters : {"", "?layout=owned"}) {
    SCOPED_TRACE(parameters);
    const FastDir directory;
    const std::string file = directory.path("timers");
    const std::string link = directory.path("link");
    const auto opens = [&](const std::string& name) {
      int error = 0;
      workflow::open_sqlite_backend(name + parameters, options_, &error, &message_);
      return error;
    };
    ASSERT_EQ(opens(file), 0) << message_;
    std::filesystem::create_hard_link(file, link);
    for (const std::string& name : {file, link}) {
      EXPECT_EQ(opens(name), EMLINK) << name;
      EXPECT_TRUE(says(name + ": the file has 2 names")) << message_;
    }
    std::filesystem::remove(link);
    EXPECT_EQ(opens(file), 0) << message_;
    // As if its creator had been killed in the last moment.
    std::filesystem::create_hard_link(file, file + "-new");
    EXPECT_EQ(opens(file), 0) << message_;
    EXPECT_FALSE(std::filesystem::exists(file + "-new"));
  }
}

TEST_F(SqliteOpen, APathThatIsTooLongSaysSo) {
  const std::string deep = directory_.path(std::string(200, 'd')) + "/" + std::string(200, 'd');
  std::filesystem::create_directories(deep);
  for (const std::string& longest :
       {directory_.path(std::string(243, 'n')), deep + "/" + std::string(499 - deep.size(), 'n')}) {
    path_ = longest;
    EXPECT_EQ(open(), 0) << message_;
    carry_out(*backend_, schedule("tea", clock_.us));
    path_ += "n";
    EXPECT_EQ(open(), ENAMETOOLONG);
    EXPECT_TRUE(says("bytes; at most ")) << message_;
    EXPECT_FALSE(std::filesystem::exists(path_ + "-queue"));
  }
}

TEST_F(SqliteOpen, WhatIsNoStoreIsRefusedAndNotChanged) {
  for (const std::string& bytes :
       {std::string(), std::string("some text\n"), std::string(100'000, 'x')}) {
    std::ofstream(path_) << bytes;
    EXPECT_EQ(open(), EILSEQ);
    EXPECT_TRUE(says("not a store")) << message_;
    EXPECT_EQ(std::filesystem::file_size(path_), bytes.size());
    std::filesystem::remove(path_);
  }
  workflow::SqliteConnection other;
  other.open(path_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  other.run("CREATE TABLE theirs(a)");
  other.close();
  EXPECT_EQ(open(), EILSEQ);
  EXPECT_TRUE(says("not a store")) << message_;
}

TEST_F(SqliteOpen, ALaterLayoutIsRefusedAndAnEarlierOneIsNone) {
  ASSERT_EQ(open(), 0);
  backend_.reset();
  change("PRAGMA user_version = 3");
  EXPECT_EQ(open(), ENOTSUP);
  EXPECT_TRUE(says("later")) << message_;
  change("PRAGMA user_version = 0");
  EXPECT_EQ(open(), EILSEQ);
  change("PRAGMA user_version = 1");
  EXPECT_EQ(open(), 0);
}

TEST_F(SqliteOpen, ALaterLayoutIsRefusedWithOneOwner) {
  const auto opens = [this](const std::string& parameters) {
    int error = 0;
    workflow::open_sqlite_backend(path_ + parameters, options_, &error, &message_);
    return error;
  };
  ASSERT_EQ(opens("?layout=owned"), 0) << message_;
  change("PRAGMA user_version = 3");
  for (const char* parameters : {"?layout=owned", ""}) {
    EXPECT_EQ(opens(parameters), ENOTSUP) << parameters;
    EXPECT_TRUE(says("later")) << message_;
  }
  change("PRAGMA user_version = 2");
  EXPECT_EQ(opens("?layout=owned"), 0) << message_;
}

TEST_F(SqliteOpen, AStoreWithoutATableIsDamaged) {
  ASSERT_EQ(open(), 0);
  backend_.reset();
  change("DROP TABLE timers");
  const int error = open();
  if (error == 0) {
    workflow::StoreFailure failure;
    carry_out(*backend_, schedule("tea", clock_.us), 1, 1, &failure);
    EXPECT_EQ(failure.error, EILSEQ) << failure.message;
  } else {
    EXPECT_EQ(error, EILSEQ);
  }
}

TEST_F(SqliteOpen, NetworkFileSystemsAreRefused) {
  // By statfs(2), or by their own sources.
  const std::map<std::string, long> types = {
      {"9P", 0x01021997},     {"AFS", 0x5346414f},  {"AFS of Linux", 0x6b414653},
      {"BeeGFS", 0x19830326}, {"Ceph", 0x00c36400}, {"CIFS", 0xff534d42},
      {"Coda", 0x73757245},   {"GFS2", 0x01161970}, {"GPFS", 0x47504653},
      {"Lustre", 0x0bd00bd0}, {"NCP", 0x564c},      {"NFS", 0x6969},
      {"OCFS2", 0x7461636f},  {"SMB", 0x517b},      {"SMB2", 0xfe534d42},
      {"vboxsf", 0x786f4256}};
  for (const auto& [name, type] : types) {
    workflow::SqliteSettings settings;
    settings.file_system_type = [type = type](const std::string&) { return type; };
    EXPECT_EQ(open(settings), ENOTSUP) << name;
    EXPECT_TRUE(says("network")) << message_;
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(workflow::is_network_file_system(0xef53L));  // ext4
}

TEST_F(SqliteOpen, FileSystemsOfFuseAreKnownByTheirNames) {
  const std::string mountinfo =
      "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard\n"
      "40 22 0:33 / /mnt/other\\040place rw,nosuid - fuse.sshfs host:/srv rw,user_id=0\n"
      "41 22 0:34 / /mnt/disk rw shared:7 master:2 - fuseblk /dev/sdb1 rw\n"
      "42 22 0:35 / /mnt/-  rw - fuse.glusterfs host:/volume rw\n";
  const auto name = [&mountinfo](unsigned major, unsigned minor) {
    return workflow::file_system_name(mountinfo, ::makedev(major, minor));
  };
  EXPECT_EQ(name(254, 1), "ext4");
  EXPECT_EQ(name(0, 33), "fuse.sshfs");
  EXPECT_EQ(name(0, 34), "fuseblk");
  EXPECT_EQ(name(0, 35), "fuse.glusterfs");
  EXPECT_EQ(name(0, 3), "");
  EXPECT_EQ(workflow::file_system_name("", ::makedev(0, 1)), "");
  for (const char* const refused :
       {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "beegfs", "vboxsf"}) {
    EXPECT_TRUE(workflow::is_network_file_system(std::string(refused))) << refused;
  }
  for (const char* const local : {"ext4", "fuseblk", "fuse.ntfs-3g", "fuse", ""}) {
    EXPECT_FALSE(workflow::is_network_file_system(std::string(local))) << local;
  }
  // A file system of FUSE that is not known to be remote is no reason to refuse a store.
  workflow::SqliteSettings settings;
  settings.file_system_type = [](const std::string&) { return 0x65735546L; };
  EXPECT_EQ(open(settings), 0) << message_;
}

// In a process whose /proc says that the folder is on such a file system.
TEST_F(SqliteOpen, ANetworkFileSystemOfFuseIsRefused) {
  constexpr int kNotAllowed = 77;
  struct stat status = {};
  ASSERT_EQ(::stat(directory_.path(".").c_str(), &status), 0);
  const std::string device =
      std::to_string(::major(status.st_dev)) + ':' + std::to_string(::minor(status.st_dev));
  const int code = in_child([this, &device] {
    if (!store_test::take_own_mounts().empty() ||
        ::mount("tmpfs", "/proc", "tmpfs", 0, nullptr) != 0) {
      return kNotAllowed;
    }
    // The leak checker of a sanitizer needs the real one when the process ends.
    struct Hidden {
      ~Hidden() { ::umount2("/proc", MNT_DETACH); }
    };
    const Hidden hidden;
    std::filesystem::create_directory("/proc/self");
    const auto error_on = [&](const std::string& name) {
      std::ofstream("/proc/self/mountinfo")
          << "22 1 " << device << " / / rw - " << name << " host:/srv rw\n";
      workflow::SqliteSettings settings;
      settings.file_system_type = [](const std::string&) { return 0x65735546L; };
      return open(settings);
    };
    for (const char* const name : {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"}) {
      if (error_on(name) != ENOTSUP || !says("network") || std::filesystem::exists(path_)) {
        return 78;
      }
    }
    const int error = error_on("fuse.ntfs-3g");
    backend_.reset();
    return error == 0 ? 0 : 79;
  });
  if (code == kNotAllowed) GTEST_SKIP() << "a process may not have mounts of its own here";
  EXPECT_EQ(code, 0);
}

// Runs as another user, since nothing is forbidden to root.
TEST_F(SqliteOpen, WhatIsNotAllowedIsNamed) {
  ASSERT_EQ(open(), 0);
  backend_.reset();
  for (const char* name : {".", "timers", "timers-queue", "timers-reserve"}) {
    if (::geteuid() == 0) {
      ASSERT_EQ(::chown(directory_.path(name).c_str(), 65534, 65534), 0);
    }
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setegid(65534) != 0 || ::seteuid(65534) != 0)) {
      ::_exit(1);
    }
    ::chmod(path_.c_str(), 0400);
    const bool read_only = open() == EROFS && says(path_);
    ::chmod(path_.c_str(), 0);
    const bool forbidden = open() == EACCES && says(path_);
    ::chmod(path_.c_str(), 0600);
    ::chmod(directory_.path(".").c_str(), 0500);
    const bool no_log = open() == EACCES;
    ::chmod(directory_.path(".").c_str(), 0700);
    const bool good = open() == 0;
    ::_exit(read_only && forbidden && no_log && good ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Gives this process mounts of its own, in which the directory cannot be written to.
bool mount_read_only(const std::string& directory) {
  const int own = CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER);
  struct statvfs mounted = {};
  if (::unshare(own) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
      ::statvfs(directory.c_str(), &mounted) != 0) {
    return false;
  }
  const unsigned long kept = mounted.f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC);
  return ::mount(nullptr, directory.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kept,
                 nullptr) == 0;
}

// As after errors of a disk. It says so of root, too.
TEST_F(SqliteOpen, AReadOnlyFileSystemIsNamed) {
  constexpr int kNotAllowed = 77;
  ASSERT_EQ(open(), 0);
  backend_.reset();
  const int code = in_child([this] {
    if (!mount_read_only(directory_.path("."))) return kNotAllowed;
    const bool there = open() == EROFS && says(path_ + ": the file can only be read");
    path_ = directory_.path("new");
    const bool missing =
        open() == EROFS &&
        says(std::filesystem::path(path_).parent_path().string() + ": Read-only file system");
    return there && missing ? 0 : 1;
  });
  if (code == kNotAllowed) GTEST_SKIP() << "a process may not have mounts of its own here";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(open(), 0) << message_;
}

TEST_F(SqliteOpen, AMissingFileBesideItsQueueIsNoNewStore) {
  ASSERT_EQ(open(), 0);
  carry_out(*backend_, schedule("tea", clock_.us));
  backend_.reset();
  std::filesystem::remove(path_);
  EXPECT_EQ(open(), EILSEQ);
  EXPECT_TRUE(says("missing")) << message_;
  std::filesystem::remove(path_ + "-queue");
  EXPECT_EQ(open(), 0);
  EXPECT_EQ(carry_out(*backend_, workflow::CountRequest{}).count, 0U);
}

TEST_F(SqliteOpen, AMissingFileBesideItsLogIsNoNewStore) {
  std::ofstream(path_ + "-wal") << "something";
  EXPECT_EQ(open(), EILSEQ);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SqliteOpen, AnotherStoreInTheSamePlaceIsNotTakenForThisOne) {
  ASSERT_EQ(open(), 0);
  backend_.reset();
  const std::string own = path_;
  path_ = directory_.path("other");
  ASSERT_EQ(open(), 0);
  backend_.reset();
  std::filesystem::rename(path_, own);
  path_ = own;
  EXPECT_EQ(open(), EILSEQ);
  EXPECT_TRUE(says("another store")) << message_;
}

// Locks of files do not keep the threads of one process apart.
TEST(SqliteOpenTogether, TwoThreadsCreateOneStore) {
  for (int round = 0; round < 40; round++) {
    const FastDir directory;
    SetClock clock;
    std::latch begin(2);
    std::string messages[2];
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < 2; i++) {
      threads.emplace_back([&, i] {
        begin.arrive_and_wait();
        const auto backend =
            open_backend(directory.path("timers"), options_of(clock, i + 1), {}, &messages[i]);
        if (backend) {
          workflow::StoreFailure failure;
          carry_out(*backend, schedule("tea", clock.us), 1, i + 1, &failure);
          messages[i] = failure.message;
        }
      });
    }
    threads.clear();  // joins them
    ASSERT_EQ(messages[0], "") << round;
    ASSERT_EQ(messages[1], "") << round;
    const auto backend = open_backend(directory.path("timers"), options_of(clock));
    ASSERT_TRUE(backend) << round;
    ASSERT_EQ(carry_out(*backend, workflow::CountRequest{}).count, 2U) << round;
  }
}

// As when another process creates the store in that moment.
TEST(SqliteOpenTogether, AFileThatAppearsMeanwhileIsNoLink) {
  const FastDir directory;
  const std::string path = directory.path("timers");
  const std::jthread maker([&path](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::ofstream(path) << "";
      ::unlink(path.c_str());
    }
  });
  for (int i = 0; i < 20'000; i++) {
    std::string found;
    std::string message;
    workflow::SqliteLayout layout{};
    workflow::find_sqlite_file(path, &found, &layout, &message);
    ASSERT_EQ(message.find("leads nowhere"), std::string::npos) << i;
  }
}

TEST_F(SqliteOpen, ADraftThatWasLeftIsNoHindrance) {
  for (const char* suffix : {"-new", "-new-journal", "-new-wal"}) {
    std::ofstream(path_ + suffix) << "half of a store";
  }
  EXPECT_EQ(open(), 0) << message_;
  EXPECT_FALSE(std::filesystem::exists(path_ + "-new"));
}

TEST_F(SqliteOpen, ABusyFileIsReportedAndTheStoreGoesOn) {
  workflow::SqliteSettings settings;
  settings.busy_ms = 20;
  ASSERT_EQ(open(settings), 0);
  workflow::SqliteConnection other;
  other.open(path_, SQLITE_OPEN_READWRITE, workflow::SqliteSeals::over(nullptr));
  other.run("BEGIN IMMEDIATE");
  workflow::StoreFailure failure;
  carry_out(*backend_, schedule("tea", clock_.us), 1, 1, &failure);
  EXPECT_EQ(failure.error, EBUSY);
  EXPECT_FALSE(failure.in_doubt);
  other.run("ROLLBACK");
  carry_out(*backend_, schedule("tea", clock_.us), 1, 1, &failure);
  EXPECT_EQ(failure.error, 0) << failure.message;
}

TEST_F(SqliteOpen, ClosingGivesEverythingBack) {
  start_symbolizer();
  const size_t before = descriptor_count();
  options_ = options_of(workflow::system_clock());
  options_.changed = [] {};
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(open(), 0);
    carry_out(*backend_, schedule("tea", backend_->now_us()));
    EXPECT_EQ(backend_->reopen(&message_), 0);
  }
  backend_->close();
  EXPECT_EQ(descriptor_count(), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + "-wal"));
}

}  // namespace
}  // namespace test_support

#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/TestSeed.h"
#include "support/Text.h"

namespace test_support {

// A virtual file system for SQLite, over the default one, on which things go wrong: operations
// fail, and the power is lost. Files are real. Nothing is really synced, because only this object
// knows when the power is lost. And the disk may be as small as a test wants it.
//
// Thread-safe. Must live longer than the connections that use it.
class FaultVfs {
 public:
  enum Operation { kRead, kWrite, kSync, kTruncate, kDelete, kShared, kOperations };

  // What would be on the disk if the power were lost at one moment.
  struct Image {
    struct Change {
      int64_t offset = 0;
      std::string bytes;
      bool truncates = false;  // to `offset` bytes
    };
    struct File {
      bool was_synced = false;
      bool was_deleted = false;
      std::string durable;           // what was synced
      std::vector<Change> unsynced;  // in their order
    };
    std::map<std::string, File> files;  // by their names without the directory
  };

  FaultVfs();
  ~FaultVfs();
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;

  const char* name() const { return name_.c_str(); }
  // Everything in this process that does not name another file system uses this one from now on.
  void use_for_all_files() { sqlite3_vfs_register(&vfs_, 1); }

  // Called before each operation; returns the result code with which it fails, or SQLITE_OK.
  // `extends` tells whether a write needs room. Null: nothing fails.
  using Fault = std::function<int(Operation operation, bool extends)>;
  void set_fault(Fault fault);
  // Only the operation of that kind that comes after `count` others fails. Later ones succeed.
  void fail_once(Operation operation, int64_t count, int code);
  // Whether the operation of fail_once() has failed.
  bool has_failed() const { return has_failed_; }

  // Syncs of that file fail from now on with that errno value, until this is called with another
  // path, or with "".
  void fail_syncs_of(const std::string& path, int system_error = 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    unsyncable_path_ = path;
    sync_error_ = system_error;
  }
  // How many have failed for that reason.
  int64_t failed_syncs() const { return failed_syncs_; }

  // All files of the directory have room for that many bytes together, as on a disk of its own. A
  // write that needs more ends where the room does, and fails as on a full disk. Files that are
  // made or cut without SQLite count, too, such as the reserve. Called before a file is opened.
  void set_disk(std::string directory, int64_t bytes);
  void resize_disk(int64_t bytes) { disk_bytes_ = bytes; }
  // How many bytes are free on that disk. Negative if files that were made without SQLite are too
  // large for it.
  int64_t free_bytes() const;
  // Whoever makes a file larger holds this meanwhile.
  std::unique_lock<std::mutex> lock_disk() { return std::unique_lock<std::mutex>(disk_mutex_); }

  // Writes to that file and syncs of it wait from now on, until this is called with another path,
  // or with "". Connections to the file must not be closed before that.
  void hold(const std::string& path) {
    std::lock_guard<std::mutex> lock(hold_mutex_);
    held_path_ = path;
    hold_changed_.notify_all();
  }
  // Whether such an operation waits.
  bool is_holding() const { return holding_ > 0; }

  // How many attempts to lock a part of the shared memory have met the lock of somebody else.
  int64_t busy_locks() const { return busy_locks_; }
  void note_lock(int result) { busy_locks_ += result == SQLITE_BUSY ? 1 : 0; }

  // What is in the file now is on the disk.
  void adopt(const std::string& path) {
    std::string bytes = text_of(path);
    std::lock_guard<std::mutex> lock(mutex_);
    file_at(path) = {true, false, std::move(bytes), {}};
  }

  // How many bytes were written to the file and not synced since.
  size_t unsynced_bytes(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t bytes = 0;
    for (const Image::Change& change : file_at(path).unsynced) {
      bytes += change.bytes.size();
    }
    return bytes;
  }

  // Takes an image before the operation that comes after `count` others that change something.
  void take_image_after(int64_t count);
  bool has_image() const { return has_image_; }
  int64_t changes() const { return changes_; }

  // Before the operation that comes after `count` others that change something, the image is
  // written to the directory, and the process is killed. With `lies` no sync does anything.
  void lose_power_after(int64_t count, const std::string& directory, bool lies);

  // Writes the image as files to a directory. Changes that were not synced are lost, kept or torn,
  // each as `random` says.
  void write_image(const std::string& directory, TestRandom& random);

  // For the functions that SQLite calls.
  void wait_while_held(const char* path) {
    std::unique_lock<std::mutex> lock(hold_mutex_);
    if (held_path_ != path) return;
    holding_++;
    hold_changed_.wait(lock, [this, path] { return held_path_ != path; });
    holding_--;
  }
  int before(Operation operation, bool extends = false) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (operation == kWrite || operation == kSync || operation == kTruncate ||
        operation == kDelete) {
      if (changes_++ == image_after_) {
        image_ = now_;
        has_image_ = true;
        if (!loses_power_to_.empty()) {
          TestRandom random(test_seed(), static_cast<uint64_t>(image_after_));
          write_files(loses_power_to_, random);
          ::raise(SIGKILL);
        }
      }
    }
    return fault_ ? fault_(operation, extends) : SQLITE_OK;
  }
  int before_sync(const std::string& path) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (path == unsyncable_path_) {
        failed_syncs_++;
        errno = sync_error_;
        return SQLITE_IOERR_FSYNC;
      }
    }
    return before(kSync);
  }
  void changed(const std::string& path, Image::Change change) {
    std::lock_guard<std::mutex> lock(mutex_);
    Image::File& file = file_at(path);
    if (file.was_deleted) {
      file = Image::File();
    }
    file.unsynced.push_back(std::move(change));
  }
  // The system takes what it could not write for written, and never writes it again.
  void sync_failed(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    file_at(path).unsynced.clear();
  }
  void synced(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (lies_) return;
    Image::File& file = file_at(path);
    for (const Image::Change& change : file.unsynced) {
      apply(change, file.durable);
    }
    file.unsynced.clear();
    file.was_synced = true;
  }
  // A store that is created gets its name when it is complete, without SQLite. Nothing has been
  // done with it since then.
  void opened(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string name = path.substr(path.rfind('/') + 1);
    const auto draft = now_.files.find(name + "-new");
    if (draft != now_.files.end() && !draft->second.was_deleted && now_.files.count(name) == 0 &&
        std::filesystem::exists(path)) {
      now_.files[name] = std::move(draft->second);
      now_.files.erase(draft);
    }
  }
  void deleted(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    file_at(path).was_deleted = true;
  }

 private:
  static constexpr size_t kSector = 512;

  void write_files(const std::string& directory, TestRandom& random);
  Image::File& file_at(const std::string& path) {
    return now_.files[path.substr(path.rfind('/') + 1)];
  }

  static void apply(const Image::Change& change, std::string& bytes) {
    const auto offset = static_cast<size_t>(change.offset);
    if (change.truncates) {
      bytes.resize(offset);
      return;
    }
    bytes.resize(std::max(bytes.size(), offset + change.bytes.size()));
    bytes.replace(offset, change.bytes.size(), change.bytes);
  }

  // Some of its sectors get to the disk.
  static void tear(const Image::Change& change, std::string& bytes, TestRandom& random) {
    for (size_t at = 0; at < change.bytes.size();) {
      const size_t sector_end = (static_cast<size_t>(change.offset) + at) / kSector * kSector +
                                kSector - static_cast<size_t>(change.offset);
      const size_t end = std::min(change.bytes.size(), sector_end);
      if (random.one_in(2)) {
        apply({change.offset + static_cast<int64_t>(at), change.bytes.substr(at, end - at), false},
              bytes);
      }
      at = end;
    }
  }

  std::string name_;
  sqlite3_vfs vfs_ = {};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> has_image_{false};
  std::atomic<int64_t> changes_{0};
  std::atomic<int64_t> busy_locks_{0};
  std::mutex mutex_;
  std::mutex disk_mutex_;
  std::mutex hold_mutex_;
  std::condition_variable hold_changed_;
  std::string held_path_;
  std::atomic<int> holding_{0};
  std::string unsyncable_path_;
  int sync_error_ = 0;
  std::atomic<int64_t> failed_syncs_{0};
  std::string disk_;  // the directory; empty: the room has no end
  std::atomic<int64_t> disk_bytes_{0};
  Fault fault_;
  Image now_;
  std::optional<Image> image_;
  int64_t image_after_ = -1;
  std::string loses_power_to_;
  bool lies_ = false;
};

// The functions that SQLite calls.
namespace fault_vfs {

struct File {
  sqlite3_file file;
  FaultVfs* vfs;
  const char* path;  // SQLite keeps it as long as the file is open
  sqlite3_file* base() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

inline File* own(sqlite3_file* file) {
  return reinterpret_cast<File*>(file);
}
inline sqlite3_file* base(sqlite3_file* file) {
  return own(file)->base();
}
// The default one, which may be another one by now.
inline sqlite3_vfs* base() {
  static sqlite3_vfs* const found = sqlite3_vfs_find(nullptr);
  return found;
}

inline int x_close(sqlite3_file* file) {
  return base(file)->pMethods->xClose(base(file));
}
inline int x_read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  const int fault = own(file)->vfs->before(FaultVfs::kRead);
  return fault ? fault : base(file)->pMethods->xRead(base(file), out, size, offset);
}
inline int x_write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  FaultVfs& vfs = *own(file)->vfs;
  vfs.wait_while_held(own(file)->path);
  const auto disk = vfs.lock_disk();
  sqlite3_int64 length = 0;
  base(file)->pMethods->xFileSize(base(file), &length);
  if (const int fault = vfs.before(FaultVfs::kWrite, offset + size > length)) return fault;
  // As write(2) does, it writes what there is room for.
  int fitting = size;
  if (offset + size > length) {
    const int64_t end = length + std::clamp<int64_t>(vfs.free_bytes(), 0, offset + size - length);
    fitting = static_cast<int>(std::max<int64_t>(end - offset, 0));
  }
  int result = SQLITE_OK;
  if (fitting > 0) {
    vfs.changed(own(file)->path,
                {offset, std::string(static_cast<const char*>(bytes), static_cast<size_t>(fitting)),
                 false});
    result = base(file)->pMethods->xWrite(base(file), bytes, fitting, offset);
  }
  if (result != SQLITE_OK || fitting == size) return result;
  errno = ENOSPC;
  return SQLITE_FULL;
}
inline int x_truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (const int fault = own(file)->vfs->before(FaultVfs::kTruncate)) return fault;
  own(file)->vfs->changed(own(file)->path, {size, {}, true});
  return base(file)->pMethods->xTruncate(base(file), size);
}
inline int x_sync(sqlite3_file* file, int) {
  own(file)->vfs->wait_while_held(own(file)->path);
  if (const int fault = own(file)->vfs->before_sync(own(file)->path)) {
    own(file)->vfs->sync_failed(own(file)->path);
    return fault;
  }
  own(file)->vfs->synced(own(file)->path);
  return SQLITE_OK;
}
inline int x_file_size(sqlite3_file* file, sqlite3_int64* out) {
  return base(file)->pMethods->xFileSize(base(file), out);
}
inline int x_lock(sqlite3_file* file, int lock) {
  return base(file)->pMethods->xLock(base(file), lock);
}
inline int x_unlock(sqlite3_file* file, int lock) {
  return base(file)->pMethods->xUnlock(base(file), lock);
}
inline int x_check_reserved_lock(sqlite3_file* file, int* out) {
  return base(file)->pMethods->xCheckReservedLock(base(file), out);
}
inline int x_file_control(sqlite3_file* file, int operation, void* argument) {
  return base(file)->pMethods->xFileControl(base(file), operation, argument);
}
inline int x_sector_size(sqlite3_file* file) {
  return base(file)->pMethods->xSectorSize(base(file));
}
inline int x_device_characteristics(sqlite3_file* file) {
  return base(file)->pMethods->xDeviceCharacteristics(base(file));
}
inline int x_shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  FaultVfs& vfs = *own(file)->vfs;
  if (const int fault = vfs.before(FaultVfs::kShared)) return fault;
  const auto disk = vfs.lock_disk();
  std::error_code missing;
  const auto length = std::filesystem::file_size(own(file)->path + std::string("-shm"), missing);
  const int64_t growth = int64_t{page + 1} * size - (missing ? 0 : static_cast<int64_t>(length));
  if (extend != 0 && growth > 0 && growth > vfs.free_bytes()) {
    errno = ENOSPC;
    return SQLITE_IOERR_SHMSIZE;
  }
  return base(file)->pMethods->xShmMap(base(file), page, size, extend, out);
}
inline int x_shm_lock(sqlite3_file* file, int offset, int n, int flags) {
  const int result = base(file)->pMethods->xShmLock(base(file), offset, n, flags);
  own(file)->vfs->note_lock(result);
  return result;
}
inline void x_shm_barrier(sqlite3_file* file) {
  base(file)->pMethods->xShmBarrier(base(file));
}
inline int x_shm_unmap(sqlite3_file* file, int remove) {
  return base(file)->pMethods->xShmUnmap(base(file), remove);
}

inline const sqlite3_io_methods kMethods = {2,
                                            x_close,
                                            x_read,
                                            x_write,
                                            x_truncate,
                                            x_sync,
                                            x_file_size,
                                            x_lock,
                                            x_unlock,
                                            x_check_reserved_lock,
                                            x_file_control,
                                            x_sector_size,
                                            x_device_characteristics,
                                            x_shm_map,
                                            x_shm_lock,
                                            x_shm_barrier,
                                            x_shm_unmap,
                                            nullptr,
                                            nullptr};

inline int x_open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
  File* self = own(file);
  self->vfs = static_cast<FaultVfs*>(vfs->pAppData);
  self->path = name ? name : "temporary";
  self->base()->pMethods = nullptr;
  self->vfs->opened(self->path);
  const int result = base()->xOpen(base(), name, self->base(), flags, out);
  file->pMethods = self->base()->pMethods ? &kMethods : nullptr;
  return result;
}
inline int x_delete(sqlite3_vfs* vfs, const char* name, int) {
  auto* self = static_cast<FaultVfs*>(vfs->pAppData);
  if (const int fault = self->before(FaultVfs::kDelete)) return fault;
  self->deleted(name);
  return base()->xDelete(base(), name, 0);
}
inline int x_access(sqlite3_vfs*, const char* name, int flags, int* out) {
  return base()->xAccess(base(), name, flags, out);
}
inline int x_full_pathname(sqlite3_vfs*, const char* name, int size, char* out) {
  return base()->xFullPathname(base(), name, size, out);
}

}  // namespace fault_vfs

inline FaultVfs::FaultVfs() {
  static std::atomic<int> count{0};
  name_ = "fault-" + std::to_string(count++);
  vfs_ = *fault_vfs::base();
  vfs_.iVersion = 2;
  vfs_.szOsFile += static_cast<int>(sizeof(fault_vfs::File));
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.pNext = nullptr;
  vfs_.xOpen = fault_vfs::x_open;
  vfs_.xDelete = fault_vfs::x_delete;
  vfs_.xAccess = fault_vfs::x_access;
  vfs_.xFullPathname = fault_vfs::x_full_pathname;
  sqlite3_vfs_register(&vfs_, 0);
}

inline FaultVfs::~FaultVfs() {
  sqlite3_vfs_unregister(&vfs_);
}

inline void FaultVfs::set_fault(Fault fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  fault_ = std::move(fault);
}

inline void FaultVfs::fail_once(Operation operation, int64_t count, int code) {
  has_failed_ = false;
  set_fault([this, operation, count, code](Operation each, bool) mutable {
    if (each != operation || count-- != 0) return SQLITE_OK;
    has_failed_ = true;
    errno = code == SQLITE_FULL ? ENOSPC : EIO;
    return code;
  });
}

inline void FaultVfs::set_disk(std::string directory, int64_t bytes) {
  disk_ = std::move(directory);
  disk_bytes_ = bytes;
}

inline int64_t FaultVfs::free_bytes() const {
  if (disk_.empty()) return INT64_MAX;
  int64_t left = disk_bytes_;
  for (const auto& entry : std::filesystem::directory_iterator(disk_)) {
    std::error_code gone;
    const uintmax_t bytes = entry.file_size(gone);
    left -= gone ? 0 : static_cast<int64_t>(bytes);
  }
  return left;
}

inline void FaultVfs::take_image_after(int64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  image_after_ = count;
}

inline void FaultVfs::lose_power_after(int64_t count, const std::string& directory, bool lies) {
  std::lock_guard<std::mutex> lock(mutex_);
  image_after_ = count;
  loses_power_to_ = directory;
  lies_ = lies;
}

inline void FaultVfs::write_image(const std::string& directory, TestRandom& random) {
  std::lock_guard<std::mutex> lock(mutex_);
  write_files(directory, random);
}

inline void FaultVfs::write_files(const std::string& directory, TestRandom& random) {
  for (const auto& [name, file] : image_ ? image_->files : now_.files) {
    if ((file.was_deleted && random.one_in(2)) || (!file.was_synced && random.one_in(2))) continue;
    std::string bytes = file.durable;
    for (const Image::Change& change : file.unsynced) {
      const uint64_t fate = random.below(3);
      if (fate == 0 || (fate == 1 && change.truncates)) {
        apply(change, bytes);
      } else if (fate == 1) {
        tear(change, bytes, random);
      }
    }
    std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
  }
}

}  // namespace test_support

#include "store/SqliteFile.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "store/SqlitePlace.h"
#include "store/SqliteSchema.h"
#include "store/SqliteSeals.h"
#include "store/SqliteStatement.h"
#include "util/Thread.h"
#include "util/Time.h"
#include "util/UniqueFd.h"

namespace workflow {

namespace {

constexpr int64_t kFrameBytes = 24 + SqliteSeals::kPageBytes;
using FirstPage = std::array<unsigned char, SqliteSeals::kPageBytes>;

// Whether this process may do that, by the user that counts for the system calls.
bool allows(const std::string& path, int what) {
  return ::faccessat(AT_FDCWD, path.c_str(), what, AT_EACCESS) == 0;
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

int say(int error, const std::string& what, std::string* message) {
  *message = what;
  return error;
}

int errno_message(const std::string& path, std::string* message) {
  const int error = errno;
  return say(error, path + ": " + std::strerror(error), message);
}

uint32_t big(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
         uint32_t{bytes[3]};
}

bool is_network_fuse(const std::string& directory) {
  std::ostringstream mountinfo;
  mountinfo << std::ifstream("/proc/self/mountinfo").rdbuf();
  struct stat status = {};
  return ::stat(directory.c_str(), &status) == 0 &&
         is_network_file_system(file_system_name(mountinfo.str(), status.st_dev));
}

void remove_database(const std::string& path) {
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
    ::unlink((path + suffix).c_str());
  }
}

// Makes the entries of a directory durable.
int sync_directory(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.valid() && ::fsync(directory.get()) == 0 ? 0 : errno;
}

// Reads through the virtual file system: SQLite's locks on a file are lost if somebody else in the
// process closes it.
int read_first_page(const char* vfs_name, const std::string& path, FirstPage* page) {
  sqlite3_vfs* const vfs = sqlite3_vfs_find(vfs_name);
  if (vfs == nullptr) return SQLITE_ERROR;
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::calloc(1, static_cast<size_t>(vfs->szOsFile)), &std::free);
  const std::unique_ptr<const char, decltype(&sqlite3_free_filename)> name(
      sqlite3_create_filename(path.c_str(), "", "", 0, nullptr), &sqlite3_free_filename);
  if (!memory || !name) return SQLITE_NOMEM;
  auto* file = static_cast<sqlite3_file*>(memory.get());
  int result =
      vfs->xOpen(vfs, name.get(), file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, nullptr);
  if (result == SQLITE_OK) {
    result = file->pMethods->xRead(file, page->data(), SqliteSeals::kPageBytes, 0);
  }
  if (file->pMethods) {
    file->pMethods->xClose(file);
  }
  return result;
}

}  // namespace

int SqliteFile::check_directory(std::string* message) const {
  const std::string directory = directory_of(path_);
  long type = 0;
  if (settings_.file_system_type) {
    type = settings_.file_system_type(directory);
  } else {
    struct statfs status = {};
    if (::statfs(directory.c_str(), &status) != 0) return errno_message(directory, message);
    type = static_cast<long>(status.f_type);
  }
  if (is_network_file_system(type) || (is_fuse(type) && is_network_fuse(directory))) {
    return say(ENOTSUP, directory + ": a store must not be on a network file system", message);
  }
  if (exists()) {
    if (!allows(path_, R_OK)) return errno_message(path_, message);
    if (!allows(path_, W_OK)) return say(EROFS, path_ + ": the file can only be read", message);
  }
  if (!allows(directory, W_OK | X_OK)) return errno_message(directory, message);
  return 0;
}

bool SqliteFile::exists() const {
  return allows(path_, F_OK);
}

bool SqliteFile::has_log() const {
  FileStatus log;
  return log.read(log_path_) == 0 && log.bytes > 0;
}

int SqliteFile::check_links(std::string* message) const {
  struct stat status = {};
  if (::stat(path_.c_str(), &status) != 0) return errno_message(path_, message);
  struct stat draft = {};
  const std::string draft_path = path_ + "-new";
  if (status.st_nlink > 1 && ::stat(draft_path.c_str(), &draft) == 0 &&
      draft.st_dev == status.st_dev && draft.st_ino == status.st_ino) {
    // Whoever has created the store was killed before it removed this name.
    ::unlink(draft_path.c_str());
    status.st_nlink--;
  }
  if (status.st_nlink <= 1) return 0;
  return say(EMLINK,
             path_ + ": the file has " + std::to_string(status.st_nlink) +
                 " names (hard links), each of which would be another store: remove the others",
             message);
}

int SqliteFile::create(int64_t now_us, std::string* message) const {
  const std::string draft = path_ + "-new";
  remove_database(draft);
  uint64_t identity = 0;
  while (identity == 0) {
    if (::getrandom(&identity, sizeof identity, 0) < 0 && errno != EINTR) {
      return errno_message("getrandom", message);
    }
  }
  {
    SqliteConnection connection;
    connection.open(draft, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                    SqliteSeals::over(settings_.base_vfs));
    if (connection.is_open()) {
      int reserved = SqliteSeals::kSealBytes;
      connection.note(
          sqlite3_file_control(connection.handle(), "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved));
    }
    connection.run(
        "PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; PRAGMA synchronous = FULL;"
        "BEGIN IMMEDIATE;");
    SqliteSchema::create(connection, layout_, identity, now_us);
    connection.run("COMMIT; PRAGMA journal_mode = WAL;");
    if (connection.code() != SQLITE_OK) {
      const int error = fail(connection, message);
      connection.close();
      remove_database(draft);
      return error;
    }
  }
  // link(2) does not replace a file that somebody else has put there.
  if (::link(draft.c_str(), path_.c_str()) == 0) {
    ::unlink(draft.c_str());
  } else if ((errno != EPERM && errno != EOPNOTSUPP) ||
             ::rename(draft.c_str(), path_.c_str()) != 0) {
    const int error = errno_message(path_, message);
    remove_database(draft);
    return error;
  }
  if (const int error = sync_directory(directory_of(path_))) {
    errno = error;
    return errno_message(directory_of(path_), message);
  }
  return 0;
}

int SqliteFile::check_header(std::string* message) const {
  // https://www.sqlite.org/fileformat2.html#the_database_header
  FirstPage header = {};
  const int result = read_first_page(settings_.base_vfs, path_, &header);
  if (result != SQLITE_OK && result != SQLITE_IOERR_SHORT_READ) {
    return say(EIO, path_ + ": cannot be read: " + sqlite3_errstr(result), message);
  }
  constexpr char kMagic[] = "SQLite format 3";
  const uint32_t layout = big(&header[60]);
  if (std::memcmp(header.data(), kMagic, sizeof kMagic) != 0 ||
      big(&header[68]) != SqliteSchema::kApplicationId) {
    return say(EILSEQ, path_ + ": not a store", message);
  }
  const bool is_whole = SqliteSeals::is_whole(header.data(), 1);
  if (layout > SqliteSchema::kLastLayout && is_whole) {
    return say(
        ENOTSUP,
        path_ + ": written by a later version of the library, layout " + std::to_string(layout),
        message);
  }
  const auto own_layout = static_cast<uint32_t>(layout_);
  if (layout != own_layout && layout != 0 && is_whole) {
    return say(EINVAL,
               path_ + (layout_ == SqliteLayout::kOwned
                            ? ": a shared store: open it without layout=owned"
                            : ": a store that one process owns: open it with ?layout=owned"),
               message);
  }
  if (layout != own_layout || header[16] != SqliteSeals::kPageBytes >> 8 || header[17] != 0 ||
      header[18] != 2 || header[20] != SqliteSeals::kSealBytes) {
    return say(EILSEQ, path_ + ": damaged", message);
  }
  return 0;
}

int SqliteFile::open(std::string* message) {
  if (const int error = check_header(message)) return error;
  if (const int error = file_.read(path_)) {
    return say(error, path_ + ": " + std::strerror(error), message);
  }
  log_bytes_ = 0;
  log_ = {};
  index_ = {};
  for (SqliteConnection* connection : {&connection_, &checkpoints_}) {
    if (const int error = open_connection(*connection, message)) {
      close();
      return error;
    }
  }
  sqlite3_wal_hook(connection_.handle(), committed, this);
  connection_.run("PRAGMA cache_size = -16384;");
  checkpoints_.run("PRAGMA cache_size = -256;");
  if (connection_.number("PRAGMA application_id") != SqliteSchema::kApplicationId ||
      connection_.number("PRAGMA user_version") != static_cast<int>(layout_)) {
    connection_.note(SQLITE_CORRUPT);
  }
  checkpoints_.number("PRAGMA schema_version");  // opens the log, as the above has done
  log_.read(log_path_);                          // is_same() finds out if it is not there
  index_.read(index_path_);
  StoreFailure replaced;
  int error = 0;
  if (connection_.code() != SQLITE_OK || checkpoints_.code() != SQLITE_OK) {
    error = fail(connection_.code() != SQLITE_OK ? connection_ : checkpoints_, message);
  } else if (!is_same(&replaced)) {
    error = say(replaced.error, replaced.message, message);
  } else if (sqlite3_db_readonly(connection_.handle(), "main") != 0) {
    error = say(EROFS, path_ + ": the file can only be read", message);
  }
  if (error != 0) {
    close();
  }
  return error;
}

int SqliteFile::open_connection(SqliteConnection& connection, std::string* message) const {
  connection.forget_error();
  connection.set_patience(settings_.busy_ms);
  connection.open(path_, SQLITE_OPEN_READWRITE, SqliteSeals::over(settings_.base_vfs));
  connection.set_copies_on_close(false);
  connection.run(
      "PRAGMA mmap_size = 0; PRAGMA cache_spill = OFF; PRAGMA secure_delete = OFF;"
      "PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 0;");
  connection.run(settings_.full_sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
  return connection.code() == SQLITE_OK ? 0 : fail(connection, message);
}

void SqliteFile::close() {
  checkpoints_.close();
  connection_.close();
  log_ = {};
  index_ = {};
}

void SqliteFile::set_copies_on_close(bool copies) {
  checkpoints_.set_copies_on_close(copies);
  connection_.set_copies_on_close(copies);
}

// The index of the log (https://sqlite.org/walformat.html, 2.3): a header of 48 bytes, a copy of
// it, and how many frames of the log are in the file.
int SqliteFile::forget_copied() {
  constexpr uint32_t kIndexVersion = 3007000;
  constexpr size_t kWordOfCopied = 24;  // as a word
  constexpr int kPageBytes = 32768;
  constexpr int kFirstIndexLock = 0;
  constexpr int kIndexLocks = 2;  // that of whoever writes, and that of whoever copies
  sqlite3_file* file = nullptr;
  sqlite3_file_control(connection_.handle(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  const sqlite3_io_methods* const methods = file == nullptr ? nullptr : file->pMethods;
  if (methods == nullptr || methods->iVersion < 2) return SQLITE_IOERR;
  volatile void* page = nullptr;
  int code = methods->xShmMap(file, 0, kPageBytes, 0, &page);
  if (code != SQLITE_OK || page == nullptr) return code == SQLITE_OK ? SQLITE_PROTOCOL : code;
  auto* const words = static_cast<volatile uint32_t*>(page);
  if (words[0] != kIndexVersion) return SQLITE_PROTOCOL;
  const int64_t until_ns = monotonic_ns() + settings_.busy_ms * kNsPerMs;
  const auto lock = [&] {
    return methods->xShmLock(file, kFirstIndexLock, kIndexLocks,
                             SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE);
  };
  while ((code = lock()) == SQLITE_BUSY && monotonic_ns() < until_ns) {
    pause_ns(kNsPerMs);
  }
  if (code != SQLITE_OK) return code;
  words[kWordOfCopied] = 0;
  methods->xShmBarrier(file);
  return methods->xShmLock(file, kFirstIndexLock, kIndexLocks,
                           SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
}

int SqliteFile::copy_log(std::string* message) {
  // Otherwise only the frames would be copied that others have not copied yet.
  connection_.note(forget_copied());
  if (connection_.code() != SQLITE_OK) return fail(connection_, message);
  connection_.note(sqlite3_wal_checkpoint_v2(connection_.handle(), "main",
                                             SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr));
  return connection_.code() == SQLITE_OK ? 0 : fail(connection_, message);
}

int SqliteFile::check_pages(std::string* message) {
  std::string found;
  {
    SqliteStatement check(connection_, "PRAGMA quick_check(1)");
    SqliteCursor rows = check.find();
    if (rows.next()) {
      found = rows.text(0);
      std::replace(found.begin(), found.end(), '\n', ' ');
    }
  }
  // SQLite says in the text that a page could not be read, and why.
  constexpr std::string_view kCode = "error code=";
  if (const size_t place = found.find(kCode); place != std::string::npos) {
    connection_.note(std::atoi(found.c_str() + place + kCode.size()));
  }
  if (connection_.code() != SQLITE_OK) return fail(connection_, message);
  return found == "ok" ? 0 : say(EILSEQ, path_ + ": damaged: " + found, message);
}

int64_t SqliteFile::growth() {
  const int64_t pages = connection_.number("PRAGMA page_count");
  connection_.forget_error();  // whoever copies meets it again
  sqlite3_file* file = nullptr;
  sqlite3_file_control(connection_.handle(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  sqlite3_int64 bytes = 0;
  if (file == nullptr || file->pMethods->xFileSize(file, &bytes) != SQLITE_OK) return 0;
  return std::max<int64_t>(pages * SqliteSeals::kPageBytes - bytes, 0);
}

bool SqliteFile::is_same(StoreFailure* failure) const {
  FileStatus found;
  if (const int error = found.read(path_)) {
    failure->error = error;
    failure->message =
        path_ + ": " + (error == ENOENT ? "the file was deleted" : std::strerror(error));
    return false;
  }
  if (!found.is_same_file(file_)) {
    failure->error = ESTALE;
    failure->message = path_ + ": the file was replaced";
    return false;
  }
  if (found.read(log_path_) != 0 || !found.is_same_file(log_)) {
    failure->error = ESTALE;
    failure->message = log_path_ + ": the log was deleted or replaced";
    return false;
  }
  // Whoever opens the store without the index makes a new one, with locks of its own.
  if (found.read(index_path_) != 0 || !found.is_same_file(index_)) {
    failure->error = ESTALE;
    failure->message = index_path_ + ": the index of the log was deleted or replaced";
    return false;
  }
  return true;
}

bool SqliteFile::save_lost_log() {
  FileStatus found;
  const bool is_lost = log_.inode != 0 && found.read(log_path_) == ENOENT &&
                       found.read(path_) == 0 && found.is_same_file(file_);
  if (!is_lost) return false;
  // Waits for the process that is committing just now; others notice the loss before they commit.
  // And for those that read or copy: whoever reads what is in the old log makes the next commit go
  // on behind it, in a log that is not that one.
  const int64_t until_ns = monotonic_ns() + settings_.busy_ms * kNsPerMs;
  for (;;) {
    const int code = sqlite3_wal_checkpoint_v2(connection_.handle(), "main",
                                               SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
    connection_.note(code);
    // SQLite itself does not wait for another process that copies.
    if ((code & 0xff) != SQLITE_BUSY || monotonic_ns() >= until_ns) return true;
    pause_ns(kNsPerMs);
  }
}

bool SqliteFile::goes_on_after(int error) {
  return error == EBUSY || error == ENOMEM || error == ENOSPC;
}

bool SqliteFile::is_full(const SqliteConnection& connection) {
  const int code = connection.code();
  const int error = connection.system_error();
  return code == SQLITE_FULL || ((code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_SHMSIZE ||
                                  code == SQLITE_IOERR_SHMOPEN) &&
                                 (error == ENOSPC || error == EDQUOT));
}

bool SqliteFile::is_sync(const SqliteConnection& connection) {
  return connection.code() == SQLITE_IOERR_FSYNC || connection.code() == SQLITE_IOERR_DIR_FSYNC;
}

StoreFailure SqliteFile::failure_of(const SqliteConnection& connection) const {
  const int code = connection.code();
  const int system_error = connection.system_error();
  StoreFailure failure;
  failure.message = path_ + ": " + connection.message();
  if (is_full(connection)) {
    failure.error = ENOSPC;
    failure.message = path_ + ": the disk is full";
  } else if (code == SQLITE_IOERR_DATA || code == SQLITE_IOERR_CORRUPTFS) {
    failure.error = EILSEQ;
    failure.message = path_ + ": damaged: a page does not have its checksum";
  } else {
    switch (code & 0xff) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
      case SQLITE_PROTOCOL:
        failure.error = EBUSY;
        break;
      case SQLITE_NOMEM:
        failure.error = ENOMEM;
        break;
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
      case SQLITE_ERROR:  // tables or columns are missing
        failure.error = EILSEQ;
        break;
      case SQLITE_READONLY:
        failure.error = EROFS;
        break;
      case SQLITE_PERM:
      case SQLITE_AUTH:
        failure.error = EACCES;
        break;
      case SQLITE_TOOBIG:
        failure.error = EMSGSIZE;
        break;
      default:
        failure.error = system_error != 0 ? system_error : EIO;
        // A sync may fail with ENOSPC, and is a failure of the disk all the same.
        if ((code & 0xff) == SQLITE_IOERR && goes_on_after(failure.error)) {
          failure.error = EIO;
        }
    }
  }
  return failure;
}

int SqliteFile::fail(const SqliteConnection& connection, std::string* message) const {
  const StoreFailure failure = failure_of(connection);
  return say(failure.error, failure.message, message);
}

int SqliteFile::committed(void* file, sqlite3*, const char*, int frames) {
  auto* self = static_cast<SqliteFile*>(file);
  self->log_bytes_ = frames * kFrameBytes;
  return SQLITE_OK;
}

}  // namespace workflow

#include "store/SqliteSeals.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "util/Mutex.h"

namespace workflow {

namespace {

constexpr int64_t kPage = SqliteSeals::kPageBytes;
constexpr int64_t kDatabaseHeader = 100;

// The format of write-ahead logs (https://www.sqlite.org/fileformat2.html#walformat).
constexpr int64_t kLogHeader = 32;
constexpr int64_t kFrameHeader = 24;
constexpr int64_t kFrame = kFrameHeader + kPage;

enum class Kind { kDatabase, kLog };
// In which order a log is summed up. A machine writes all its logs in its own.
enum class ByteOrder { kUnknown, kLittle, kBig };

// What SQLite knows as an open file. The file of the base follows it in memory.
struct SealedFile {
  sqlite3_file file;
  Kind kind;
  ByteOrder byte_order;
  // A page or a frame that is being written or read.
  alignas(8) std::array<unsigned char, kFrame> frame;

  sqlite3_file* base() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

SealedFile* sealed(sqlite3_file* file) {
  return reinterpret_cast<SealedFile*>(file);
}
sqlite3_file* base(sqlite3_file* file) {
  return sealed(file)->base();
}
sqlite3_vfs* base(sqlite3_vfs* vfs) {
  return static_cast<sqlite3_vfs*>(vfs->pAppData);
}

uint64_t load_word(const unsigned char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

void store_word(unsigned char* bytes, uint64_t word) {
  if constexpr (std::endian::native != std::endian::little) {
    word = __builtin_bswap64(word);
  }
  std::memcpy(bytes, &word, sizeof word);
}

uint32_t load_big(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
         uint32_t{bytes[3]};
}

uint32_t load_little(const unsigned char* bytes) {
  return uint32_t{bytes[3]} << 24 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[1]} << 8 |
         uint32_t{bytes[0]};
}

// Reads a part of one page, or more where SQLite does not know yet how large a page is.
int read_database(SealedFile* file, unsigned char* out, int size, int64_t offset) {
  // SQLite reads the header of a database before it knows that there are pages of this size, and
  // even of files that are no stores. It reads the first page as a whole before it uses the rest.
  const bool is_header = offset + size <= kDatabaseHeader;
  const int64_t start = offset - offset % kPage;
  if (!is_header && size < kPage && offset + size <= start + kPage) {
    unsigned char* page = file->frame.data();
    const int result = read_database(file, page, kPage, start);
    std::memcpy(out, page + (offset - start), static_cast<size_t>(size));
    return result;
  }
  const int result = file->base()->pMethods->xRead(file->base(), out, size, offset);
  if (result == SQLITE_IOERR_SHORT_READ) {
    sqlite3_int64 length = 0;
    const int size_result = file->base()->pMethods->xFileSize(file->base(), &length);
    // A database that is just being created has no pages.
    return size_result == SQLITE_OK && length > 0 ? SQLITE_IOERR_DATA : result;
  }
  if (result != SQLITE_OK || size != kPage || offset % kPage != 0) return result;
  const auto number = static_cast<uint64_t>(offset / kPage) + 1;
  return SqliteSeals::is_whole(out, number) ? SQLITE_OK : SQLITE_IOERR_DATA;
}

int write_database(SealedFile* file, const unsigned char* bytes, int size, int64_t offset) {
  if (size != kPage || offset % kPage != 0) {
    return file->base()->pMethods->xWrite(file->base(), bytes, size, offset);
  }
  unsigned char* page = file->frame.data();
  std::memcpy(page, bytes, kPage - SqliteSeals::kSealBytes);
  store_word(page + kPage - SqliteSeals::kSealBytes,
             SqliteSeals::of(page, static_cast<uint64_t>(offset / kPage) + 1));
  return file->base()->pMethods->xWrite(file->base(), page, kPage, offset);
}

// The checksum that a log keeps in its header and in each frame, over all frames up to it.
struct LogSum {
  uint32_t first;
  uint32_t second;

  template <uint32_t (*LOAD)(const unsigned char*)>
  void add(const unsigned char* bytes, int64_t size) {
    for (int64_t i = 0; i < size; i += 8) {
      first += LOAD(bytes + i) + second;
      second += LOAD(bytes + i + 4) + first;
    }
  }
};

// Whether the sum of a frame follows from that before it.
bool fits(LogSum sum, const unsigned char* frame, bool big_endian) {
  if (big_endian) {
    sum.add<load_big>(frame, 8);
    sum.add<load_big>(frame + kFrameHeader, kPage);
  } else {
    sum.add<load_little>(frame, 8);
    sum.add<load_little>(frame + kFrameHeader, kPage);
  }
  return sum.first == load_big(frame + 16) && sum.second == load_big(frame + 20);
}

int read_log(SealedFile* file, unsigned char* out, int size, int64_t offset) {
  sqlite3_file* base = file->base();
  if (size != kPage || offset < kLogHeader || (offset - kLogHeader) % kFrame != kFrameHeader) {
    return base->pMethods->xRead(base, out, size, offset);
  }
  const int64_t start = offset - kFrameHeader;
  unsigned char* frame = file->frame.data();
  int result = base->pMethods->xRead(base, frame, kFrame, start);
  if (result == SQLITE_OK && file->byte_order == ByteOrder::kUnknown) {
    unsigned char magic[4];
    result = base->pMethods->xRead(base, magic, sizeof magic, 0);
    if (result == SQLITE_OK) {
      file->byte_order = (load_big(magic) & 1) != 0 ? ByteOrder::kBig : ByteOrder::kLittle;
    }
  }
  unsigned char before[8];
  if (result == SQLITE_OK) {
    result = base->pMethods->xRead(base, before, sizeof before,
                                   start == kLogHeader ? kLogHeader - 8 : start - kFrame + 16);
  }
  if (result != SQLITE_OK) return result == SQLITE_IOERR_SHORT_READ ? SQLITE_IOERR_DATA : result;
  std::memcpy(out, frame + kFrameHeader, kPage);
  return fits({load_big(before), load_big(before + 4)}, frame, file->byte_order == ByteOrder::kBig)
             ? SQLITE_OK
             : SQLITE_IOERR_DATA;
}

int x_close(sqlite3_file* file) {
  return base(file)->pMethods ? base(file)->pMethods->xClose(base(file)) : SQLITE_OK;
}

int x_read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  auto* bytes = static_cast<unsigned char*>(out);
  return sealed(file)->kind == Kind::kDatabase ? read_database(sealed(file), bytes, size, offset)
                                               : read_log(sealed(file), bytes, size, offset);
}

thread_local int write_error = 0;

int note_write(int result) {
  if (result != SQLITE_OK) {
    write_error = errno;
  }
  return result;
}

int x_write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  return note_write(
      sealed(file)->kind == Kind::kDatabase
          ? write_database(sealed(file), static_cast<const unsigned char*>(bytes), size, offset)
          : base(file)->pMethods->xWrite(base(file), bytes, size, offset));
}

int x_truncate(sqlite3_file* file, sqlite3_int64 size) {
  return note_write(base(file)->pMethods->xTruncate(base(file), size));
}

// Hands a call on to the base. FUNCTION is a member of sqlite3_io_methods.
template <auto FUNCTION>
struct Forward;
template <class... ARGUMENTS, int (*sqlite3_io_methods::*FUNCTION)(sqlite3_file*, ARGUMENTS...)>
struct Forward<FUNCTION> {
  static int call(sqlite3_file* file, ARGUMENTS... arguments) {
    return (base(file)->pMethods->*FUNCTION)(base(file), arguments...);
  }
};

void x_shm_barrier(sqlite3_file* file) {
  base(file)->pMethods->xShmBarrier(base(file));
}

const sqlite3_io_methods kMethods = {
    2,
    x_close,
    x_read,
    x_write,
    x_truncate,
    Forward<&sqlite3_io_methods::xSync>::call,
    Forward<&sqlite3_io_methods::xFileSize>::call,
    Forward<&sqlite3_io_methods::xLock>::call,
    Forward<&sqlite3_io_methods::xUnlock>::call,
    Forward<&sqlite3_io_methods::xCheckReservedLock>::call,
    Forward<&sqlite3_io_methods::xFileControl>::call,
    Forward<&sqlite3_io_methods::xSectorSize>::call,
    Forward<&sqlite3_io_methods::xDeviceCharacteristics>::call,
    Forward<&sqlite3_io_methods::xShmMap>::call,
    Forward<&sqlite3_io_methods::xShmLock>::call,
    x_shm_barrier,
    Forward<&sqlite3_io_methods::xShmUnmap>::call,
    nullptr,
    nullptr,
};

int x_open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  if ((flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL)) == 0) {
    return base(vfs)->xOpen(base(vfs), name, file, flags, flags_out);
  }
  SealedFile* self = sealed(file);
  self->kind = flags & SQLITE_OPEN_WAL ? Kind::kLog : Kind::kDatabase;
  self->byte_order = ByteOrder::kUnknown;
  self->base()->pMethods = nullptr;
  const int result = base(vfs)->xOpen(base(vfs), name, self->base(), flags, flags_out);
  file->pMethods = self->base()->pMethods ? &kMethods : nullptr;
  return result;
}

int x_delete(sqlite3_vfs* vfs, const char* name, int sync) {
  return base(vfs)->xDelete(base(vfs), name, sync);
}
int x_access(sqlite3_vfs* vfs, const char* name, int flags, int* out) {
  return base(vfs)->xAccess(base(vfs), name, flags, out);
}
int x_full_pathname(sqlite3_vfs* vfs, const char* name, int size, char* out) {
  return base(vfs)->xFullPathname(base(vfs), name, size, out);
}
int x_randomness(sqlite3_vfs* vfs, int size, char* out) {
  return base(vfs)->xRandomness(base(vfs), size, out);
}
int x_sleep(sqlite3_vfs* vfs, int us) {
  return base(vfs)->xSleep(base(vfs), us);
}
int x_current_time(sqlite3_vfs* vfs, double* out) {
  return base(vfs)->xCurrentTime(base(vfs), out);
}
int x_get_last_error(sqlite3_vfs* vfs, int size, char* out) {
  return base(vfs)->xGetLastError(base(vfs), size, out);
}
int x_current_time_int64(sqlite3_vfs* vfs, sqlite3_int64* out) {
  return base(vfs)->xCurrentTimeInt64(base(vfs), out);
}

struct SealsVfs {
  std::string name;
  sqlite3_vfs vfs = {};
};

}  // namespace

const char* SqliteSeals::over(const char* base_name) {
  static Mutex mutex;
  // Leaked: connections may be open when the process ends.
  static auto* const known = new std::map<std::string, SealsVfs>();
  MutexLock lock(mutex);
  sqlite3_vfs* const base = sqlite3_vfs_find(base_name);
  if (base == nullptr || base->iVersion < 2) return nullptr;
  const auto [place, is_new] = known->try_emplace(base->zName);
  SealsVfs& seals = place->second;
  if (is_new) {
    seals.name = std::string("workflow-seals-") + base->zName;
    seals.vfs.iVersion = 2;
    seals.vfs.szOsFile = static_cast<int>(sizeof(SealedFile)) + base->szOsFile;
    seals.vfs.mxPathname = base->mxPathname;
    seals.vfs.zName = seals.name.c_str();
    seals.vfs.pAppData = base;
    seals.vfs.xOpen = x_open;
    seals.vfs.xDelete = x_delete;
    seals.vfs.xAccess = x_access;
    seals.vfs.xFullPathname = x_full_pathname;
    seals.vfs.xRandomness = x_randomness;
    seals.vfs.xSleep = x_sleep;
    seals.vfs.xCurrentTime = x_current_time;
    seals.vfs.xGetLastError = x_get_last_error;
    seals.vfs.xCurrentTimeInt64 = x_current_time_int64;
    if (sqlite3_vfs_register(&seals.vfs, 0) != SQLITE_OK) {
      known->erase(place);
      return nullptr;
    }
  }
  return seals.name.c_str();
}

int SqliteSeals::take_write_error() {
  return std::exchange(write_error, 0);
}

bool SqliteSeals::is_whole(const unsigned char* page, uint64_t number) {
  return load_word(page + kPageBytes - kSealBytes) == of(page, number);
}

// Each step is a bijection of its lane for a given word, and of the word for a given lane, so that
// a change of one word always changes the seal.
uint64_t SqliteSeals::of(const unsigned char* page, uint64_t number) {
  constexpr size_t kLanes = 4;
  constexpr uint64_t kFactor = 0xc6f14d9e3b8a2475;
  std::array<uint64_t, kLanes> lanes;
  for (size_t i = 0; i < kLanes; i++) {
    lanes[i] = (number + i + 1) * kFactor;
  }
  constexpr size_t kWords = (kPageBytes - kSealBytes) / 8;
  size_t word = 0;
  for (; word + kLanes <= kWords; word += kLanes) {
    for (size_t i = 0; i < kLanes; i++) {
      lanes[i] = std::rotl((lanes[i] ^ load_word(page + (word + i) * 8)) * kFactor, 29);
    }
  }
  for (size_t i = 0; word < kWords; word++, i++) {
    lanes[i] = std::rotl((lanes[i] ^ load_word(page + word * 8)) * kFactor, 29);
  }
  uint64_t seal = number;
  for (const uint64_t lane : lanes) {
    seal = (seal ^ lane) * kFactor;
    seal ^= seal >> 31;
  }
  return seal;
}

}  // namespace workflow

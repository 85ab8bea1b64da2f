// Preloaded into a server (LD_PRELOAD), counts what it allocates from the C library: each call of
// malloc and its relatives adds one to an 8-byte counter in the file ALLOCATION_COUNTER, which
// others may read meanwhile. Built as a library of its own; works for any dynamically linked
// program that keeps to the C library's allocator.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

// What glibc's own functions are called beside the names that are replaced here.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}
// NOLINTEND(readability-identifier-naming)

namespace {

using Counter = std::atomic<uint64_t>;

// Constant-initialised: the first allocations come before any constructor.
Counter before_the_file{0};
std::atomic<Counter*> counter{&before_the_file};

void count() {
  counter.load(std::memory_order_relaxed)->fetch_add(1, std::memory_order_relaxed);
}

// The mapping is shared, so that a worker that is forked later counts into the same file.
__attribute__((constructor)) void open_file() {
  const char* const path = std::getenv("ALLOCATION_COUNTER");
  const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0 || ftruncate(fd, sizeof(Counter)) != 0) return;
  void* const page = mmap(nullptr, sizeof(Counter), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) counter.store(static_cast<Counter*>(page));
  close(fd);
}

}  // namespace

extern "C" {

void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}

void* calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}

void* realloc(void* memory, size_t size) {
  count();
  return __libc_realloc(memory, size);
}

void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, size_t alignment, size_t size) {
  count();
  void* const got = __libc_memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *memory = got;
  return 0;
}

}  // extern "C"

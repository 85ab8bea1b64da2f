// The functions that the compiler calls for ThreadSanitizer.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "coherence/Machine.h"

namespace coherence {
namespace {

inline void touch(const volatile void* address, size_t size, Access kind, void* caller) {
  Machine::the().access(const_cast<const void*>(address), size, kind,
                        reinterpret_cast<uintptr_t>(caller));
}

// On x86 a store that is sequentially consistent is an exchange.
inline Access kind_of_store(int order) {
  return order == __ATOMIC_SEQ_CST ? Access::kReadModifyWrite : Access::kWrite;
}

}  // namespace
}  // namespace coherence

using coherence::Access;
using coherence::touch;

#define CALLER __builtin_return_address(0)

#define PLAIN(size)                            \
  void __tsan_read##size(void* p) {            \
    touch(p, size, Access::kRead, CALLER);     \
  }                                            \
  void __tsan_write##size(void* p) {           \
    touch(p, size, Access::kWrite, CALLER);    \
  }                                            \
  void __tsan_unaligned_read##size(void* p) {  \
    touch(p, size, Access::kRead, CALLER);     \
  }                                            \
  void __tsan_unaligned_write##size(void* p) { \
    touch(p, size, Access::kWrite, CALLER);    \
  }

#define MODIFY(bits, type, name)                                     \
  type __tsan_atomic##bits##_##name(volatile type* p, type v, int) { \
    touch(p, sizeof(type), Access::kReadModifyWrite, CALLER);        \
    return __atomic_##name(p, v, __ATOMIC_SEQ_CST);                  \
  }

#define ATOMIC(bits, type)                                                                      \
  type __tsan_atomic##bits##_load(const volatile type* p, int) {                                \
    touch(p, sizeof(type), Access::kRead, CALLER);                                              \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                \
  }                                                                                             \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int order) {                       \
    touch(p, sizeof(type), coherence::kind_of_store(order), CALLER);                            \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                             \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {                          \
    touch(p, sizeof(type), Access::kReadModifyWrite, CALLER);                                   \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                         \
  }                                                                                             \
  MODIFY(bits, type, fetch_add)                                                                 \
  MODIFY(bits, type, fetch_sub)                                                                 \
  MODIFY(bits, type, fetch_and)                                                                 \
  MODIFY(bits, type, fetch_or)                                                                  \
  MODIFY(bits, type, fetch_xor)                                                                 \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type expected, type v, int, \
                                                  int) {                                        \
    touch(p, sizeof(type), Access::kReadModifyWrite, CALLER);                                   \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    return expected;                                                                            \
  }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* caller) {
  coherence::Machine::enter(reinterpret_cast<uintptr_t>(caller));
}
void __tsan_func_exit() {
  coherence::Machine::leave();
}
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_vptr_read(void** p) {
  touch(p, sizeof *p, Access::kRead, CALLER);
}
void __tsan_vptr_update(void** p, void*) {
  touch(p, sizeof *p, Access::kWrite, CALLER);
}
void __tsan_read_range(void* p, size_t size) {
  touch(p, size, Access::kRead, CALLER);
}
void __tsan_write_range(void* p, size_t size) {
  touch(p, size, Access::kWrite, CALLER);
}

// Fibers keep the thread that runs them.
void* __tsan_get_current_fiber() {
  return nullptr;
}
void* __tsan_create_fiber(unsigned) {
  return nullptr;
}
void __tsan_destroy_fiber(void*) {}
void __tsan_switch_to_fiber(void*, unsigned) {}

// The linker is told to call these instead of the functions of the C library.
void* __real_memcpy(void* to, const void* from, size_t size);
void* __real_memmove(void* to, const void* from, size_t size);
void* __real_memset(void* to, int value, size_t size);

void* __wrap_memcpy(void* to, const void* from, size_t size) {
  if (size > 0) {
    touch(from, size, Access::kRead, CALLER);
    touch(to, size, Access::kWrite, CALLER);
  }
  return __real_memcpy(to, from, size);
}
void* __wrap_memmove(void* to, const void* from, size_t size) {
  if (size > 0) {
    touch(from, size, Access::kRead, CALLER);
    touch(to, size, Access::kWrite, CALLER);
  }
  return __real_memmove(to, from, size);
}
void* __wrap_memset(void* to, int value, size_t size) {
  if (size > 0) touch(to, size, Access::kWrite, CALLER);
  return __real_memset(to, value, size);
}

}  // extern "C"

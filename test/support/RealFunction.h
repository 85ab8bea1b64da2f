#pragma once

#include <dlfcn.h>

#include <cstdio>

namespace test_support {

// The function of the system that a test program has replaced by one of the same name.
// A sanitizer that is linked into the program has a version of its own, which must see the call:
// it is found first. Any thread, also before main().
template <class Function>
Function* real_function(const char* name) {
  char interceptor[64];
  std::snprintf(interceptor, sizeof interceptor, "__interceptor_%s", name);
  void* found = ::dlsym(RTLD_DEFAULT, interceptor);
  if (!found) {
    found = ::dlsym(RTLD_NEXT, name);
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace test_support

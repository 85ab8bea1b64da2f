#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <functional>

#include "support/Sanitizers.h"
#include "support/TestServer.h"
#include "workflow/WFTaskFactory.h"

using namespace server_test;

namespace {

// Runs on a thread with a stack of that size. Returns the error of its creation.
int run_with_stack(size_t size, std::function<void()> body) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, size);
  pthread_t thread = {};
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  const int error = ::pthread_create(&thread, &attributes, run, &body);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) {
    ::pthread_join(thread, nullptr);
  }
  return error;
}

// What is local to each thread takes a part of its stack. The library needs little of that, so a
// program may have threads with small stacks, and these may call the library. The server is there
// so that all of the library is linked.
TEST(SmallStacks, ThreadsOfTheApplicationMayHaveThem) {
  if (test_support::kSanitized) {
    GTEST_SKIP() << "a sanitizer has much more that is local to each thread";
  }
  TestServer server;
  int cancelled = -1;
  const int error = run_with_stack(size_t{64} * 1024, [&cancelled] {
    WFTaskFactory::create_timer_task("small stack", 3600, 0, nullptr)->start();
    cancelled = WFTaskFactory::cancel_by_name("small stack");
  });
  EXPECT_EQ(error, 0);
  EXPECT_EQ(cancelled, 1);
}

}  // namespace

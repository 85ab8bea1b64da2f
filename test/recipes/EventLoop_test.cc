#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "recipes/Recipes.h"
#include "workflow/WFTaskFactory.h"

namespace recipes_test {
namespace {

// Recipe
class LoopInbox {
 public:
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  LoopInbox() {
    if (fd < 0) throw std::system_error(errno, std::generic_category());
  }
  ~LoopInbox() { close(fd); }
  void post(std::function<void()> function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    functions_.push_back(std::move(function));
    eventfd_write(fd, 1);
  }
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    eventfd_t posts = 0;
    eventfd_read(fd, &posts);
    const std::vector<std::function<void()>> functions = std::exchange(functions_, {});
    lock.unlock();
    for (const auto& function : functions)
      function();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> functions_;
};
// End of recipe

TEST(EventLoopRecipe, RunsWhatCallbacksPostOnTheThreadOfTheLoop) {
  ASSERT_TRUE(clock_stands());
  constexpr int kTimers = 1000;
  LoopInbox inbox;
  std::vector<std::thread::id> threads;  // of the loop alone: nothing guards it
  for (int i = 0; i < kTimers; i++) {
    WFTaskFactory::create_timer_task(0U, [&](WFTimerTask*) {
      inbox.post([&] { threads.push_back(std::this_thread::get_id()); });
    })->start();
  }
  struct pollfd readable = {inbox.fd, POLLIN, 0};
  while (threads.size() < kTimers) {
    ASSERT_EQ(::poll(&readable, 1, 60'000), 1);
    inbox.run();
  }
  EXPECT_EQ(threads, std::vector<std::thread::id>(kTimers, std::this_thread::get_id()));
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
}

TEST(EventLoopRecipe, WhatAFunctionPostsRunsInTheNextRound) {
  LoopInbox inbox;
  int rounds = 0;
  inbox.post([&] { inbox.post([&] { rounds++; }); });
  inbox.run();
  EXPECT_EQ(rounds, 0);
  struct pollfd readable = {inbox.fd, POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
  inbox.run();
  EXPECT_EQ(rounds, 1);
}

}  // namespace
}  // namespace recipes_test

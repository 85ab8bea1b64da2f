#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "kernel/ThreadContext.h"
#include "support/RealFunction.h"
#include "support/TestServer.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpStream.h"

// A client that takes everything at once, as far as the server can tell: its large reply holds up
// neither the other connections of its poller nor the timers.

namespace {

// While this is set what is large is taken by nobody, slowly: a millisecond for so many bytes. Once
// the others were served it takes no time.
std::atomic<bool> swallows{false};
std::atomic<bool> others_served{false};
constexpr size_t kBytesPerMs = 8 * 1024;
constexpr size_t kLarge = 2048;
std::atomic<bool> refuses{false};  // there is no room for what is large
std::atomic<size_t> swallowed{0};
std::atomic<size_t> most_in_a_round{0};
thread_local size_t in_this_round = 0;

}  // namespace

extern "C" {

int epoll_wait(int fd, struct epoll_event* events, int max, int timeout) {
  static const auto call = test_support::real_function<decltype(::epoll_wait)>("epoll_wait");
  in_this_round = 0;
  return call(fd, events, max, timeout);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static const auto call = test_support::real_function<decltype(::sendmsg)>("sendmsg");
  size_t size = 0;
  for (size_t i = 0; i < message->msg_iovlen; i++) {
    size += message->msg_iov[i].iov_len;
  }
  if (refuses && size >= kLarge) {
    errno = EAGAIN;
    return -1;
  }
  if (!swallows || size < kLarge) return call(fd, message, flags);
  if (!others_served) {
    std::this_thread::sleep_for(std::chrono::microseconds(size * 1000 / kBytesPerMs));
  }
  swallowed += size;
  const workflow::ThreadContext& context = workflow::ThreadContext::current();
  if (context.poller && !context.running_for) {
    in_this_round += size;
    most_in_a_round = std::max(most_in_a_round.load(), in_this_round);
  }
  return static_cast<ssize_t>(size);
}

}  // extern "C"

namespace {

using namespace server_test;

constexpr size_t kBlock = 16 * 1024 * 1024;
constexpr int kBlocks = 6;

class WriteRounds : public testing::TestWithParam<Transport> {
 protected:
  static void SetUpTestSuite() {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    WORKFLOW_library_init(&settings);
  }
  void SetUp() override {
    swallowed = most_in_a_round = 0;
    others_served = false;
  }
  void TearDown() override { swallows = false; }

  // `reply` makes the reply to "/large"; others are empty. The client begins to take the large one
  // when nothing more of it leaves, so that it is the poller that goes on.
  void expect_others_served(http_process_t reply) {
    std::atomic<bool> ended{false};
    std::atomic<int> expired{0};
    TestServer server(
        [&](WFHttpTask* task) {
          if (std::string_view(task->get_req()->get_request_uri()) == "/large") {
            task->set_callback([&](WFHttpTask* done) {
              EXPECT_EQ(done->get_state(), WFT_STATE_SUCCESS);
              ended = true;
            });
            reply(task);
          }
        },
        server_test::http_params(), GetParam());
    RawClient other = server.client();
    ASSERT_EQ(other.ask(kGet)->status, 200);
    RawClient taker = server.asking_client(get("/large"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until the buffers are full
    swallows = true;
    taker.set_patience(std::chrono::milliseconds(1));  // nothing comes when it is swallowed
    ASSERT_TRUE(eventually([&] {
      taker.take(65536);
      return swallowed > 0;
    }));
    WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) { expired++; })->start();
    for (int i = 0; i < 10; i++) {
      EXPECT_EQ(other.ask(kGet)->status, 200);
    }
    EXPECT_TRUE(eventually([&] { return expired > 0 || ended; }));
    EXPECT_FALSE(ended) << "the others had to wait";
    others_served = true;
    EXPECT_TRUE(eventually([&] {
      taker.take(65536);
      return ended && expired > 0;
    }));
    EXPECT_GT(most_in_a_round, 0u);
    EXPECT_LE(most_in_a_round, 256u * 1024u);
  }
};

TEST_P(WriteRounds, OfAStream) {
  expect_others_served([](WFHttpTask* task) {
    WFHttpStream stream = WFHttpStream::begin(task);
    for (int i = 0; i < kBlocks; i++) {
      series_of(task)->push_back(stream.create_write_task(std::string(kBlock, 'x'), nullptr));
    }
  });
}

TEST_P(WriteRounds, OfALargeReply) {
  static const std::string block(kBlock, 'x');
  expect_others_served([](WFHttpTask* task) {
    for (int i = 0; i < kBlocks; i++) {
      task->get_resp()->append_output_body_nocopy(block);
    }
  });
}

TEST_P(WriteRounds, WhatTheSocketDoesNotTakeIsUnsent) {
  constexpr size_t kFraming = sizeof("2710\r\n\r\n") - 1;
  std::atomic<size_t> refused{0};
  std::atomic<size_t> taken{1};
  TestServer server(
      [&](WFHttpTask* task) {
        WFHttpStream stream = WFHttpStream::begin(task);
        refuses = true;
        stream.write(std::string(10'000, 'x'));
        refused = stream.unsent();
        refuses = false;
        stream.write("y");
        taken = stream.unsent();
      },
      server_test::http_params(), GetParam());
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->body, std::string(10'000, 'x') + "y");
  EXPECT_EQ(refused, 10'000 + kFraming);
  EXPECT_EQ(taken, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, WriteRounds, testing::Values(Transport::kPlain, Transport::kTls),
                         server_test::transport_name);

}  // namespace

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "support/MemoryFaults.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFTaskState.h"

// A stream that cannot begin for want of memory leaves no reply: its head may have been prepared in
// part, or sent, and what would be sent then would be wrong.

namespace {

using namespace server_test;

TEST(StreamMemory, EachAllocationOfItsBeginningMayFail) {
  std::atomic<long> failing{0};
  std::atomic<long> failures{0};
  std::atomic<bool> has_begun{false};
  std::atomic<int> state{-1};
  std::atomic<int> error{-1};
  test_support::Tally ended;
  TestServer server([&](WFHttpTask* task) {
    task->set_callback([&](WFHttpTask* now) {
      state = now->get_state();
      error = now->get_error();
      ended.add();
    });
    task->get_resp()->append_output_body("first ");
    fault::arm(failing);
    const WFHttpStream stream = WFHttpStream::begin(task);
    const int reason = errno;
    failures = fault::disarm();
    has_begun = static_cast<bool>(stream);
    if (stream) {
      EXPECT_EQ(stream.write("last"), 0);
    } else {
      EXPECT_EQ(reason, ENOMEM);
    }
  });
  size_t refused = 0;
  size_t requests = 0;
  // How many allocations there are varies a little.
  for (int without = 0; without < 3;) {
    failing = static_cast<long>(++requests);
    RawClient client = server.client();
    ASSERT_TRUE(client.send(kGet));
    const auto reply = client.reply();
    ASSERT_TRUE(ended.wait_for(requests));
    if (has_begun) {
      ASSERT_TRUE(reply) << "allocation " << requests;
      EXPECT_EQ(reply->status, 200);
      EXPECT_EQ(reply->body, "first last");
      EXPECT_EQ(state, WFT_STATE_SUCCESS);
    } else {
      EXPECT_FALSE(reply) << "allocation " << requests;
      EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
      EXPECT_EQ(error, ENOMEM);
      refused++;
    }
    without = failures == 0 ? without + 1 : 0;
  }
  std::printf("%zu allocations, without %zu of which there is no stream\n", requests - 3, refused);
  EXPECT_GT(refused, 0U);
}

}  // namespace

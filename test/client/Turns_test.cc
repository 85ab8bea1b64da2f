#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "support/RawServer.h"
#include "support/Tally.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// A request that waits for a connection gets its turn, also when the connection that it is given
// has just closed.

namespace client_test {
namespace {

// A byte; when it has come and the test says so it is whole.
class Byte : public protocol::ProtocolMessage {
 public:
  int encode(struct iovec vectors[], int) override {
    vectors[0] = {&byte, 1};
    return 1;
  }
  int append(const void* data, size_t* size) override {
    byte = *static_cast<const char*>(data);
    *size = 1;
    if (gate) {
      come->add();
      gate->wait_for(1);
    }
    return 1;
  }
  char byte = '?';
  test_support::Tally* come = nullptr;
  const test_support::Tally* gate = nullptr;
};

using ByteTask = WFNetworkTask<Byte, Byte>;
using ByteFactory = WFNetworkTaskFactory<Byte, Byte>;

// Until the peer's kernel has all that was sent.
void arrive(int fd) {
  int unsent = 1;
  while (::ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent > 0) {
    std::this_thread::yield();
  }
}

void limit_to_one_connection() {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 1;
  WORKFLOW_library_init(&settings);
}

// 'a' is answered while others wait for its connection, which ends with the answer, or is spoiled
// by a byte too many.
TEST(ClientTurns, AreKeptWhenTheConnectionHasJustClosed) {
  limit_to_one_connection();
  for (int round = 0; round < 40; round++) {
    test_support::Tally come;
    test_support::Tally queued;
    test_support::Tally gate;
    std::mutex mutex;
    std::string order;
    RawServer server([&](Peer& peer, int number) {
      char asked = 0;
      while (::recv(peer.fd(), &asked, 1, 0) == 1) {
        {
          std::lock_guard<std::mutex> lock(mutex);
          order += asked;
        }
        peer.send("x");
        if (number == 0) {
          come.wait_for(1);
          queued.wait_for(1);
          round % 2 == 0 ? static_cast<void>(peer.send("y")) : peer.close();
          arrive(peer.fd());
          gate.add();
          return;
        }
      }
    });
    test_support::Tally ended;
    std::atomic<int> good{0};
    for (const char byte : std::string("abcdef")) {
      ByteTask* task =
          ByteFactory::create_client_task(TT_TCP, "127.0.0.1", server.port(), 0, [&](ByteTask* t) {
            good += t->get_state() == WFT_STATE_SUCCESS;
            ended.add();
          });
      task->get_req()->byte = byte;
      task->set_keep_alive(60'000);
      if (byte == 'a') {
        task->get_resp()->come = &come;
        task->get_resp()->gate = &gate;
      }
      task->start();
    }
    queued.add();
    ASSERT_TRUE(ended.wait_for(6));
    EXPECT_EQ(good, 6);
    ASSERT_EQ(order, "abcdef") << round;
  }
}

}  // namespace
}  // namespace client_test

#include <gtest/gtest.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernel/Resolver.h"
#include "support/FakeDnsServer.h"
#include "support/TempDir.h"
#include "support/UdpSocket.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFServer.h"

// Clients over UDP: one datagram asks, the next from that peer answers.

namespace client_test {
namespace {

using protocol::TLVRequest;
using protocol::TLVResponse;
using test_support::UdpSocket;
using Task = WFNetworkTask<TLVRequest, TLVResponse>;
using Server = WFServer<TLVRequest, TLVResponse>;
using Factory = WFNetworkTaskFactory<TLVRequest, TLVResponse>;

struct UdpAnswer {
  int state = -2;
  int error = 0;
  int reason = 0;
  long long sequence = 0;
  std::string value;
};

Task* new_task(unsigned short port, int retry_max = 0) {
  return Factory::create_client_task(TT_UDP, "127.0.0.1", port, retry_max, nullptr);
}

// A request under way.
class Asking {
 public:
  Asking(Task* task, const std::string& value) {
    task->get_req()->set_value(value);
    task->set_callback([this](Task* ended) {
      answer_ = {ended->get_state(), ended->get_error(), ended->get_timeout_reason(),
                 ended->get_task_seq(), *ended->get_resp()->get_value()};
      group_.done();
    });
    task->start();
  }
  UdpAnswer wait() {
    group_.wait();
    return answer_;
  }
  bool ends_within_ms(int ms) { return group_.wait(ms) == std::future_status::ready; }

 private:
  UdpAnswer answer_;
  WFFacilities::WaitGroup group_{1};
};

UdpAnswer ask_over_udp(Task* task, const std::string& value) {
  return Asking(task, value).wait();
}

std::string tlv(const std::string& value) {
  const auto size = static_cast<uint32_t>(value.size());
  std::string bytes(8, '\0');
  for (int i = 0; i < 4; i++) {
    bytes[static_cast<size_t>(7 - i)] = static_cast<char>(size >> (8 * i));
  }
  return bytes + value;
}

// A server of the library's own, which echoes, on 127.0.0.1.
class EchoServer : public Server {
 public:
  explicit EchoServer(unsigned delay_us = 0, const struct WFServerParams& params = udp_params())
      : Server(&params, [delay_us](Task* task) {
          task->get_resp()->set_value(*task->get_req()->get_value());
          if (delay_us > 0) {
            series_of(task)->push_back(WFTaskFactory::create_timer_task(delay_us, nullptr));
          }
        }) {
    EXPECT_EQ(start("127.0.0.1", 0), 0);
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~EchoServer() override { stop(); }
  uint16_t port() const { return port_; }

 private:
  static struct WFServerParams udp_params() {
    struct WFServerParams params = SERVER_PARAMS_DEFAULT;
    params.transport_type = TT_UDP;
    return params;
  }
  uint16_t port_ = 0;
};

TEST(UdpClient, AsksByHostUrlAndAddress) {
  EchoServer server;
  EXPECT_EQ(ask_over_udp(new_task(server.port()), "by host").value, "by host");
  const std::string url = "tlv://127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(ask_over_udp(Factory::create_client_task(TT_UDP, url, 0, nullptr), "by url").value,
            "by url");
  const struct sockaddr_in address = UdpSocket::at(server.port());
  Task* task = Factory::create_client_task(
      TT_UDP, reinterpret_cast<const struct sockaddr*>(&address), sizeof address, 0, nullptr);
  EXPECT_EQ(ask_over_udp(task, "by address").value, "by address");
  auto result = WFFacilities::request<TLVRequest, TLVResponse>(TT_UDP, url, TLVRequest(), 0);
  EXPECT_EQ(result.task_state, WFT_STATE_SUCCESS);
}

TEST(UdpClient, ManyAtOnce) {
  EchoServer server(500);
  std::vector<std::jthread> threads;
  std::atomic<int> right{0};
  for (int n = 0; n < 8; n++) {
    threads.emplace_back([&, n] {
      for (int i = 0; i < 300; i++) {
        const std::string value = std::to_string(n) + " " + std::to_string(i);
        right += ask_over_udp(new_task(server.port()), value).value == value;
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(right, 8 * 300);
}

// An answer that comes late must not be the next one's.
TEST(UdpClient, EachRequestHasAPortOfItsOwn) {
  UdpSocket peer;
  for (int i = 0; i < 10; i++) {
    Task* task = new_task(peer.port());
    task->set_keep_alive(60'000);  // changes nothing
    Asking asking(task, std::to_string(i));
    uint16_t from = 0;
    EXPECT_EQ(peer.receive(&from), tlv(std::to_string(i)));
    ASSERT_TRUE(peer.send_to(from, tlv("right")));
    peer.send_to(from, tlv("once more"));
    const UdpAnswer answer = asking.wait();
    EXPECT_EQ(answer.value, "right");
    EXPECT_EQ(answer.sequence, 0);
  }
}

TEST(UdpClient, HearsItsPeerOnly) {
  UdpSocket peer;
  UdpSocket stranger;
  Asking asking(new_task(peer.port()), "x");
  uint16_t from = 0;
  ASSERT_TRUE(peer.receive(&from));
  stranger.send_to(from, tlv("forged"));
  peer.send_to(from, tlv("true"));
  EXPECT_EQ(asking.wait().value, "true");
}

TEST(UdpClient, WhatIsNoResponseFails) {
  UdpSocket peer;
  const auto answered_by = [&](const std::string& bytes) {
    Task* task = new_task(peer.port(), 3);
    task->get_resp()->set_size_limit(1000);
    Asking asking(task, "x");
    uint16_t from = 0;
    EXPECT_TRUE(peer.receive(&from));
    EXPECT_TRUE(peer.send_to(from, bytes));
    return asking.wait();
  };
  // Something follows the message, and it is too large: neither is asked for again.
  EXPECT_EQ(answered_by(tlv("x") + "y").error, EBADMSG);
  EXPECT_EQ(answered_by(tlv(std::string(2000, 'x'))).error, EMSGSIZE);
  EXPECT_EQ(answered_by(tlv("good")).value, "good");
  EXPECT_TRUE(peer.is_silent(1));
}

// As with what a server pushes before its reply.
TEST(UdpClient, AResponseMayTakeSeveralDatagrams) {
  UdpSocket peer;
  Asking asking(new_task(peer.port()), "x");
  uint16_t from = 0;
  ASSERT_TRUE(peer.receive(&from));
  const std::string bytes = tlv("in pieces");
  for (const std::string& piece : {bytes.substr(0, 3), std::string(), bytes.substr(3)}) {
    ASSERT_TRUE(peer.send_to(from, piece));
  }
  EXPECT_EQ(asking.wait().value, "in pieces");
}

TEST(UdpClient, LargestDatagramAndOneByteMore) {
  EchoServer server;
  const std::string largest(65507 - 8, 'x');
  EXPECT_TRUE(ask_over_udp(new_task(server.port()), largest).value == largest);
  const UdpAnswer answer = ask_over_udp(new_task(server.port(), 5), largest + "x");
  EXPECT_EQ(answer.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(answer.error, EMSGSIZE);
}

TEST(UdpClient, APortThatNobodyHasIsRefused) {
  UdpSocket nobody;
  nobody.connect_to(nobody.port());  // it receives only from itself
  int tries = 0;
  Task* task = new_task(nobody.port(), 4);
  task->set_prepare([&](Task*) { tries++; });
  const UdpAnswer answer = ask_over_udp(task, "x");
  EXPECT_EQ(answer.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(answer.error, ECONNREFUSED);
  EXPECT_EQ(tries, 5);
}

// From now on look-ups ask this name server, which decides the order of the addresses.
void resolve_by(const test_support::FakeDnsServer& names) {
  workflow::Resolver::configure(
      {.files = {.hosts_path = "", .resolv_conf_path = "", .servers = {names.address()}}});
}

TEST(UdpClient, RefusedByOneAddressAsksTheNext) {
  test_support::FakeDnsServer names;
  names.set("echo.test", {.v4 = {"127.0.0.3", "127.0.0.2", "127.0.0.1"}});
  resolve_by(names);
  EchoServer server;
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(ask_over_udp(
                  Factory::create_client_task(TT_UDP, "echo.test", server.port(), 0, nullptr), "x")
                  .value,
              "x");
  }
}

TEST(UdpClient, ALostRequestIsSentAgain) {
  UdpSocket peer;
  Task* task = new_task(peer.port(), 2);
  task->set_watch_timeout(20);
  Asking asking(task, "x");
  std::set<uint16_t> ports;
  for (int i = 0; i < 3; i++) {
    uint16_t from = 0;
    EXPECT_EQ(peer.receive(&from), tlv("x"));
    ports.insert(from);
    if (i == 2) {
      peer.send_to(from, tlv("at last"));
    }
  }
  // The last try's limit may pass before this thread has its turn: then nothing is left to try.
  const UdpAnswer answer = asking.wait();
  EXPECT_TRUE(answer.value == "at last" || answer.error == ETIMEDOUT);
  EXPECT_EQ(ports.size(), 3u);
  EXPECT_TRUE(peer.is_silent(1));
}

TEST(UdpClient, TimeLimits) {
  ASSERT_EQ(WFManualClock::install(), 0);
  UdpSocket peer;
  constexpr int64_t kNsPerMs = 1'000'000;
  const auto limited = [&](const std::function<void(Task*)>& limit, int ms, int retry_max) {
    Task* task = new_task(peer.port(), retry_max);
    limit(task);
    Asking asking(task, "x");
    for (int i = 0; i <= retry_max; i++) {
      EXPECT_EQ(peer.receive(), tlv("x")) << i;
      WFManualClock::advance((ms - 1) * kNsPerMs);
      EXPECT_FALSE(peer.has_datagram(1));
      WFManualClock::advance(1 * kNsPerMs);
      // The limit is set when the request has left: perhaps only after time was moved. If it was
      // set before, the datagram comes, however late, and time must not be moved again.
      while (!(i < retry_max ? peer.has_datagram(5000) : asking.ends_within_ms(200))) {
        WFManualClock::advance(ms * kNsPerMs);
      }
    }
    const UdpAnswer answer = asking.wait();
    EXPECT_EQ(answer.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(answer.error, ETIMEDOUT);
    EXPECT_EQ(answer.reason, TOR_TRANSMIT_TIMEOUT);
  };
  limited([](Task*) {}, 10'000, 0);  // the endpoint's
  limited([](Task* task) { task->set_watch_timeout(500); }, 500, 3);
  limited([](Task* task) { task->set_receive_timeout(700); }, 700, 1);
}

// Something of a response is more than nothing: it is not asked for again.
TEST(UdpClient, HalfAResponseIsNotRepeated) {
  ASSERT_EQ(WFManualClock::install(), 0);
  UdpSocket peer;
  Asking asking(new_task(peer.port(), 3), "x");
  uint16_t from = 0;
  ASSERT_TRUE(peer.receive(&from));
  ASSERT_TRUE(peer.send_to(from, tlv("half").substr(0, 10)));
  // Until it has arrived: on this machine as soon as it was sent, but it has to be read.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  WFManualClock::advance(10'000'000'000);
  EXPECT_EQ(asking.wait().error, ETIMEDOUT);
  EXPECT_TRUE(peer.is_silent(1));
}

TEST(UdpClient, AsManyAtOnceAsAllowed) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 2;
  WORKFLOW_library_init(&settings);
  UdpSocket peer;
  std::vector<std::unique_ptr<Asking>> asking;
  for (int i = 0; i < 6; i++) {
    asking.push_back(std::make_unique<Asking>(new_task(peer.port()), "x"));
  }
  for (int i = 0; i < 6; i += 2) {
    uint16_t first = 0;
    uint16_t second = 0;
    ASSERT_TRUE(peer.receive(&first));
    ASSERT_TRUE(peer.receive(&second));
    EXPECT_TRUE(peer.is_silent(5));
    peer.send_to(first, tlv("x"));
    peer.send_to(second, tlv("x"));
  }
  for (const auto& each : asking) {
    EXPECT_EQ(each->wait().value, "x");
  }
}

TEST(UdpClient, WhatATaskCanAsk) {
  EchoServer server;
  static std::atomic<int> freed{0};
  Task* task = new_task(server.port());
  task->set_prepare([&](Task* prepared) {
    prepared->get_connection()->set_context(&freed, [](void*) { freed++; });
  });
  WFFacilities::WaitGroup group(1);
  task->set_callback([&](Task* ended) {
    EXPECT_EQ(ended->get_state(), WFT_STATE_SUCCESS);
    EXPECT_EQ(ended->get_connection()->get_context(), &freed);
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(ended->get_peer_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
    EXPECT_EQ(ntohs(address.sin_port), server.port());
    EXPECT_EQ(ended->push("x", 1), -1);
    EXPECT_EQ(errno, ENOTSUP);
    group.done();
  });
  task->start();
  group.wait();
  // The client's side closes after the callback: wait for another's turn.
  for (int i = 0; i < 10'000 && freed == 0; i++) {
    WFFacilities::usleep(1000);
  }
  EXPECT_EQ(freed, 1);
}

TEST(UdpClient, OverUnixSockets) {
  const test_support::TempDir folder;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  folder.path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  const auto* generic = reinterpret_cast<const struct sockaddr*>(&address);
  const auto task = [&] {
    return Factory::create_client_task(TT_UDP, generic, sizeof address, 1, nullptr);
  };
  EXPECT_EQ(ask_over_udp(task(), "x").error, ENOENT);
  struct WFServerParams params = SERVER_PARAMS_DEFAULT;
  params.transport_type = TT_UDP;
  Server server(&params,
                [](Task* each) { each->get_resp()->set_value(*each->get_req()->get_value()); });
  ASSERT_EQ(server.start(generic, sizeof address), 0);
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(ask_over_udp(task(), std::to_string(i)).value, std::to_string(i));
  }
  server.stop();
}

}  // namespace
}  // namespace client_test

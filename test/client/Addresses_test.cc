#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "support/FakeDnsServer.h"
#include "support/Fetch.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "util/Time.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"

// Hosts with several addresses of which one serves, by a clock that the test moves.

namespace client_test {
namespace {

using server_test::TestServer;
using workflow::kNsPerSec;

class SeveralAddresses : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(WFManualClock::install(), 0);
    conf_ = folder_.path("resolv.conf");
    const std::string text = "nameserver " + names_.address() + "\n";
    FILE* file = std::fopen(conf_.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(text.c_str(), file);
    std::fclose(file);
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.resolv_conf_path = conf_.c_str();
    settings.hosts_path = "/dev/null";
    WORKFLOW_library_init(&settings);
    server_.emplace();
    names_.set("served.test", {.v4 = {"127.0.0.2", "127.0.0.1"}, .ttl_s = 86'400});
  }
  ~SeveralAddresses() override { WFManualClock::advance(0); }

  // One that takes no connection, and refuses none, on the server's port of another address.
  void make_black_hole() {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(server_->port());
    ::inet_pton(AF_INET, "127.0.0.2", &address_.sin_addr);
    hole_ = workflow::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* address = reinterpret_cast<const struct sockaddr*>(&address_);
    ASSERT_EQ(::bind(hole_.get(), address, sizeof address_), 0);
    ASSERT_EQ(::listen(hole_.get(), 0), 0);
    for (bool connected = true; connected;) {
      waiting_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(waiting_.back().get(), address, sizeof address_);
      struct pollfd poll_fd = {waiting_.back().get(), POLLOUT, 0};
      connected = ::poll(&poll_fd, 1, 1000) == 1;  // over loopback an answer takes no time
      ASSERT_LT(waiting_.size(), 20u);
    }
  }

  // A request that keeps no connection.
  struct Asking {
    test_support::Tally ended;
    Fetched result;
  };
  std::unique_ptr<Asking> ask() {
    auto asking = std::make_unique<Asking>();
    Asking* const raw = asking.get();
    const std::string url = "http://served.test:" + std::to_string(server_->port()) + "/";
    WFHttpTask* task = WFTaskFactory::create_http_task(url, 0, 0, [raw](WFHttpTask* done) {
      raw->result = fetched(done);
      raw->ended.add();
    });
    task->set_keep_alive(0);
    task->start();
    return asking;
  }
  static std::string status(Asking& asking) {
    return asking.ended.wait_for(1) ? asking.result.status : "it waits";
  }
  // Its host is known. It tries the one that answers nobody: time has to pass.
  void expect_waits(const Asking& asking) const {
    EXPECT_TRUE(names_.wait_for_questions("served.test", 2));
    WFManualClock::advance(0);
    EXPECT_EQ(asking.ended.count(), 0u);
  }

  const test_support::TempDir folder_;
  std::string conf_;
  test_support::FakeDnsServer names_;
  std::optional<TestServer> server_;
  struct sockaddr_in address_ = {};
  workflow::UniqueFd hole_;
  std::vector<workflow::UniqueFd> waiting_;
};

}  // namespace

TEST_F(SeveralAddresses, TheNextIsTriedWhereNobodyListens) {
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(status(*ask()), "200");
  }
  EXPECT_EQ(server_->requests(), 3);
}

TEST_F(SeveralAddresses, OneThatAnswersNobodyCostsOneRequestItsTime) {
  make_black_hole();
  const auto first = ask();
  expect_waits(*first);
  WFManualClock::advance(10 * kNsPerSec);
  EXPECT_EQ(status(*first), "200");
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(status(*ask()), "200");
  }
}

TEST_F(SeveralAddresses, OneThatFailedIsTriedAgainByOneRequest) {
  make_black_hole();
  const auto first = ask();
  expect_waits(*first);
  WFManualClock::advance(10 * kNsPerSec);
  EXPECT_EQ(status(*first), "200");
  WFManualClock::advance(30 * kNsPerSec);
  const auto again = ask();
  expect_waits(*again);
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(status(*ask()), "200");
  }
  WFManualClock::advance(10 * kNsPerSec);
  EXPECT_EQ(status(*again), "200");
}

TEST_F(SeveralAddresses, OneThatWorksAgainIsTheFirstAgain) {
  names_.set("served.test", {.v4 = {"127.0.0.2", "127.0.0.1"}, .ttl_s = 86'400});
  EXPECT_EQ(status(*ask()), "200");
  EXPECT_EQ(server_->requests(), 1);
  WFHttpServer other(server_test::echo);
  ASSERT_EQ(other.start("127.0.0.2", server_->port()), 0);
  EXPECT_EQ(status(*ask()), "200");
  EXPECT_EQ(server_->requests(), 2) << "it was tried too early";
  WFManualClock::advance(30 * kNsPerSec);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(status(*ask()), "200");
  }
  EXPECT_EQ(server_->requests(), 2);
  other.stop();
}

TEST_F(SeveralAddresses, AllOfThemAreTriedWhereAllHaveFailed) {
  names_.set("dead.test", {.v4 = {"127.0.0.2", "127.0.0.3"}});
  const std::string url = "http://dead.test:" + std::to_string(server_->port()) + "/";
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(fetch(url).error, ECONNREFUSED);
  }
  WFHttpServer other(server_test::echo);
  ASSERT_EQ(other.start("127.0.0.3", server_->port()), 0);
  EXPECT_EQ(fetch(url).status, "200");
  other.stop();
}

}  // namespace client_test

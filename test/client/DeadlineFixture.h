#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "support/FakeDnsServer.h"
#include "support/Fetch.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"

// Requests that a deadline ends by a clock that the test moves. There is one connection at most to
// each server, so that the next request shows that it was given back.

namespace client_test {

using std::chrono::milliseconds;

// Shorter than every time limit of a client.
inline constexpr int kLimitMs = 3000;

inline void pass(int ms) {
  WFManualClock::advance(milliseconds(ms));
}

// A request with a deadline around it. Its end is recorded.
class Limited {
 public:
  template <class REQ, class RESP>
  explicit Limited(WFNetworkTask<REQ, RESP>* task, int limit_ms = kLimitMs) {
    task->set_callback([this](WFNetworkTask<REQ, RESP>* done) {
      result_.state = done->get_state();
      result_.error = done->get_error();
      result_.timeout_reason = done->get_timeout_reason();
      ended_.add();
    });
    WFDeadlineTask* deadline =
        with_deadline(task, milliseconds(limit_ms), [this](WFDeadlineTask* done) {
          deadline_state_ = done->get_state();
          all_ended_.add();
        });
    deadline->start();
  }
  ~Limited() { EXPECT_TRUE(all_ended_.wait_for(1)); }

  bool ended() const { return ended_.count() > 0; }
  const Fetched& result() {
    EXPECT_TRUE(ended_.wait_for(1));
    return result_;
  }
  int deadline_state() {
    EXPECT_TRUE(all_ended_.wait_for(1));
    return deadline_state_;
  }
  size_t calls() const { return ended_.count(); }

 private:
  test_support::Tally ended_;
  test_support::Tally all_ended_;
  Fetched result_;
  int deadline_state_ = -2;
};

// Not a ms before, and then at once.
inline void expect_ends(Limited& limited, int ms = kLimitMs) {
  pass(ms - 1);
  EXPECT_FALSE(limited.ended());
  pass(1);
  EXPECT_EQ(limited.result().state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(limited.result().error, ETIMEDOUT);
  EXPECT_EQ(limited.result().timeout_reason, TOR_NOT_TIMEOUT);
  EXPECT_EQ(limited.deadline_state(), WFT_STATE_SYS_ERROR);
  EXPECT_EQ(limited.calls(), 1u);
}

inline WFHttpTask* get(const std::string& url, int redirect_max = 0, int retry_max = 0) {
  return WFTaskFactory::create_http_task(url, redirect_max, retry_max, nullptr);
}

// The first connection is played by a script, the second perhaps by another, all others answer.
class ClientDeadline : public testing::Test {
 protected:
  using Script = std::function<void(Peer&)>;

  void SetUp() override {
    ASSERT_EQ(WFManualClock::install(), 0);
    conf_ = folder_.path("resolv.conf");
    FILE* file = std::fopen(conf_.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(("nameserver " + names_.address() + "\n").c_str(), file);
    std::fclose(file);
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.dns_ttl_min = 0;
    settings.endpoint_params.max_connections = 1;
    settings.resolv_conf_path = conf_.c_str();
    settings.hosts_path = "/dev/null";
    WORKFLOW_library_init(&settings);
  }
  ~ClientDeadline() override { WFManualClock::advance(0); }

  void serve(Script first, Script second = nullptr) {
    server_ = std::make_unique<RawServer>([first, second](Peer& peer, int n) {
      if (n == 0) {
        first(peer);
      }
      if (n == 1 && second) {
        second(peer);
      }
      while (n > 0 && !peer.request().empty()) {
        peer.reply("served");
      }
    });
  }
  // For the first connection: `bytes` in answer to a request, then its end is waited for.
  Script stalls_after(const std::string& bytes) {
    return [this, bytes](Peer& peer) {
      peer.request();
      peer.send(bytes);
      asked_.add();
      closed_.add(peer.ended());
    };
  }
  // Stalls before the client has said anything that the peer understands.
  Script stalls_at_once() {
    return [this](Peer& peer) {
      asked_.add();
      char byte;
      while (::recv(peer.fd(), &byte, 1, 0) > 0) {
      }
      closed_.add();
    };
  }
  // The client waits for what does not come; its deadline ends that and the connection, and the
  // next request has another.
  void expect_ends_here(Limited& limited) {
    ASSERT_TRUE(asked_.wait_for(1));
    expect_ends(limited);
    EXPECT_TRUE(closed_.wait_for(1));
    expect_served();
  }
  void expect_served() {
    EXPECT_EQ(fetch(server_->url()).body, "served");
    EXPECT_EQ(fetch(server_->url()).sequence, 1);
  }

  test_support::TempDir folder_;
  std::string conf_;
  test_support::FakeDnsServer names_;
  test_support::Tally asked_;
  test_support::Tally closed_;
  std::unique_ptr<RawServer> server_;
};

}  // namespace client_test

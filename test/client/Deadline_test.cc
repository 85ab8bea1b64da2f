#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/DeadlineFixture.h"
#include "support/FakeDnsServer.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "support/UdpSocket.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFHttpChunkedClient.h"

// Requests that a deadline ends in each of their phases.

namespace client_test {

TEST_F(ClientDeadline, WaitingForAddresses) {
  names_.set("silent.test", {.how = test_support::DnsReply::How::kDrop});
  Limited limited(get("http://silent.test/"));
  ASSERT_TRUE(names_.wait_for_questions("silent.test", 1));
  expect_ends(limited);
}

TEST_F(ClientDeadline, WaitingForAddressesThatOthersWaitForAsWell) {
  serve([](Peer& peer) {
    while (!peer.request().empty()) {
      peer.reply("served");
    }
  });
  names_.set("late.test", {.v4 = {"127.0.0.1"}});
  names_.hold();
  const std::string url = "http://late.test:" + std::to_string(server_->port()) + "/";
  Limited limited(get(url));
  Limited patient(get(url), -1);
  while (names_.asked("late.test") == 0) {
    std::this_thread::yield();
  }
  expect_ends(limited);
  EXPECT_FALSE(patient.ended());
  names_.release();
  EXPECT_EQ(patient.result().state, WFT_STATE_SUCCESS);
}

TEST_F(ClientDeadline, WaitingForItsTurn) {
  test_support::Tally go;
  serve([&](Peer& peer) {
    peer.request();
    asked_.add();
    go.wait_for(1);
    do {
      peer.reply("served");
    } while (!peer.request().empty());
  });
  Limited first(get(server_->url()), -1);
  ASSERT_TRUE(asked_.wait_for(1));
  Limited second(get(server_->url()));
  Limited third(get(server_->url()), -1);
  expect_ends(second);
  EXPECT_FALSE(third.ended());
  go.add();
  EXPECT_EQ(first.result().state, WFT_STATE_SUCCESS);
  EXPECT_EQ(third.result().state, WFT_STATE_SUCCESS);
  EXPECT_EQ(fetch(server_->url()).sequence, 2);
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(ClientDeadline, Connecting) {
  workflow::UniqueFd listen(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_in address = test_support::loopback();
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<struct sockaddr*>(&address);
  ASSERT_EQ(::bind(listen.get(), generic, length), 0);
  ASSERT_EQ(::listen(listen.get(), 0), 0);
  ::getsockname(listen.get(), generic, &length);
  // Nobody accepts, so what the others send to connect is lost.
  std::vector<workflow::UniqueFd> waiting;
  for (bool connected = true; connected;) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(waiting.back().get(), generic, sizeof address);
    struct pollfd poll_fd = {waiting.back().get(), POLLOUT, 0};
    connected = ::poll(&poll_fd, 1, 1000) == 1;  // over loopback an answer takes no time
    ASSERT_LT(waiting.size(), 20u);
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  Limited limited(get(url, 0, 5));
  expect_ends(limited);
  // The second waits for a turn if the first has not given it back, and for a connection if it has.
  Limited next(get(url), 20'000);
  pass(10'000);
  EXPECT_EQ(next.result().timeout_reason, TOR_CONNECT_TIMEOUT);
}

TEST_F(ClientDeadline, WaitingForAProxysTunnel) {
  serve(stalls_after(""));
  Limited limited(
      WFTaskFactory::create_http_task("https://127.0.0.1:1/", server_->url(), 0, 0, nullptr));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, ShakingHands) {
  serve(stalls_at_once());
  Limited limited(get("https" + server_->url().substr(4), 0, 5));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, WaitingForRoomToSend) {
  test_support::Tally go;
  serve([&](Peer& peer) {
    asked_.add();
    go.wait_for(1);
    char buffer[4096];
    while (::recv(peer.fd(), buffer, sizeof buffer, 0) > 0) {
    }
    closed_.add();
  });
  static const std::string large(20'000'000, 'z');
  WFHttpTask* task = get(server_->url());
  task->get_req()->set_method("POST");
  task->get_req()->append_output_body_nocopy(large);
  Limited limited(task);
  ASSERT_TRUE(asked_.wait_for(1));
  expect_ends(limited);
  go.add();
  EXPECT_TRUE(closed_.wait_for(1));
  expect_served();
}

TEST_F(ClientDeadline, WaitingForTheFirstByte) {
  serve(stalls_after(""));
  Limited limited(get(server_->url(), 0, 5));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, AmidTheHead) {
  serve(stalls_after("HTTP/1.1 200 OK\r\nContent-Le"));
  Limited limited(get(server_->url(), 0, 5));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, AmidTheBody) {
  serve(stalls_after("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive."));
  Limited limited(get(server_->url(), 0, 5));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, OnAConnectionThatWasKept) {
  serve([this](Peer& peer) {
    peer.request();
    peer.reply("kept");
    peer.request();
    asked_.add();
    closed_.add(peer.ended());
  });
  EXPECT_EQ(fetch(server_->url()).body, "kept");
  Limited limited(get(server_->url(), 0, 5));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, BetweenRetries) {
  RawServer closing([this](Peer& peer, int) {
    peer.request();
    asked_.add();
  });
  Limited limited(get(closing.url(), 0, 1'000'000'000));
  ASSERT_TRUE(asked_.wait_for(20));
  expect_ends(limited);
  // The one that was under way may still arrive.
  const int connections = closing.connections();
  fetch(closing.url());
  EXPECT_LE(closing.connections(), connections + 2);
}

TEST_F(ClientDeadline, BetweenRedirects) {
  RawServer turning([this](Peer& peer, int) {
    while (!peer.request().empty()) {
      asked_.add();
      peer.send("HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n");
    }
  });
  Limited limited(get(turning.url(), 1'000'000'000));
  ASSERT_TRUE(asked_.wait_for(20));
  // The callbacks never pause, so the clock does not wait for them.
  std::thread moves([] { pass(kLimitMs); });
  EXPECT_EQ(limited.result().state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(limited.result().error, ETIMEDOUT);
  moves.join();
  EXPECT_EQ(fetch(turning.url()).status, "302");
}

TEST_F(ClientDeadline, OfAProtocolOfOnesOwn) {
  using Factory = WFNetworkTaskFactory<protocol::TLVRequest, protocol::TLVResponse>;
  serve(stalls_at_once());
  auto* task = Factory::create_client_task(TT_TCP, "127.0.0.1", server_->port(), 5, nullptr);
  task->get_req()->set_value("question");
  Limited limited(task);
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, OfDatagrams) {
  using Factory = WFNetworkTaskFactory<protocol::TLVRequest, protocol::TLVResponse>;
  test_support::UdpSocket silent;
  for (int i = 0; i < 3; i++) {
    auto* task = Factory::create_client_task(TT_UDP, "127.0.0.1", silent.port(), 5, nullptr);
    task->get_req()->set_value("question");
    Limited limited(task);
    EXPECT_NE(silent.receive(), "");
    expect_ends(limited);
  }
}

TEST_F(ClientDeadline, HandsOutThePiecesThatCameBefore) {
  serve(stalls_after("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\nt"));
  test_support::Tally extracted;
  Limited limited(WFHttpChunkedClient::create_chunked_task(
      server_->url(), 0, [&](WFHttpChunkedTask*) { extracted.add(); }, nullptr));
  ASSERT_TRUE(extracted.wait_for(1));
  expect_ends_here(limited);
}

TEST_F(ClientDeadline, WaitsForAnExtractThatRuns) {
  serve(stalls_after("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"));
  test_support::Tally extracts;
  WFFacilities::WaitGroup go(1);
  Limited limited(WFHttpChunkedClient::create_chunked_task(
      server_->url(), 0,
      [&](WFHttpChunkedTask*) {
        extracts.add();
        go.wait();
      },
      nullptr));
  ASSERT_TRUE(extracts.wait_for(1));
  pass(kLimitMs);
  EXPECT_FALSE(limited.ended());
  go.done();
  EXPECT_EQ(limited.result().error, ETIMEDOUT);
  EXPECT_TRUE(closed_.wait_for(1));
  EXPECT_EQ(extracts.count(), 1u);
  expect_served();
}

TEST_F(ClientDeadline, LeavesAloneWhatEndsInTime) {
  serve([](Peer& peer) {
    while (!peer.request().empty()) {
      peer.reply("served");
    }
  });
  for (int i = 0; i < 3; i++) {
    Limited limited(get(server_->url()));
    EXPECT_EQ(limited.result().state, WFT_STATE_SUCCESS);
    EXPECT_EQ(limited.deadline_state(), WFT_STATE_SUCCESS);
    pass(kLimitMs);
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(ClientDeadline, WhatFollowsIsNotSent) {
  serve(stalls_after(""));
  RawServer other([](Peer&, int) {});
  test_support::Tally told;
  WFHttpTask* following = get(other.url());
  following->set_callback([&](WFHttpTask* task) {
    EXPECT_EQ(task->get_error(), ETIMEDOUT);
    told.add();
  });
  WFHttpTask* first = get(server_->url());
  test_support::Tally ended;
  WFDeadlineTask* deadline =
      with_deadline(first, milliseconds(kLimitMs), [&](WFDeadlineTask*) { ended.add(); });
  deadline->sub_series()->push_back(following);
  deadline->start();
  ASSERT_TRUE(asked_.wait_for(1));
  pass(kLimitMs);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(told.count(), 1u);
  EXPECT_EQ(other.connections(), 0);
}

TEST_F(ClientDeadline, EndsManyAtOnce) {
  serve(stalls_after(""));
  constexpr size_t kRequests = 200;
  test_support::Tally late;
  test_support::Tally ended;
  ParallelWork* all = Workflow::create_parallel_work(nullptr);
  for (size_t i = 0; i < kRequests; i++) {
    WFHttpTask* task = get(server_->url());
    task->set_callback([&](WFHttpTask* done) { late.add(done->get_error() == ETIMEDOUT); });
    all->add_series(Workflow::create_series_work(task, nullptr));
  }
  with_deadline(all, milliseconds(kLimitMs), [&](WFDeadlineTask*) { ended.add(); })->start();
  ASSERT_TRUE(asked_.wait_for(1));
  pass(kLimitMs);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(late.count(), kRequests);
  EXPECT_TRUE(closed_.wait_for(1));
  expect_served();
}

TEST_F(ClientDeadline, HasTheReasonOfTheScopeAroundIt) {
  serve(stalls_after(""));
  test_support::Tally ended;
  Fetched result;
  server_test::TestServer outer([&](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    WFHttpTask* inner = get(server_->url());
    inner->set_callback([&](WFHttpTask* done) {
      result = fetched(done);
      ended.add();
    });
    series_of(task)->push_back(with_deadline(inner, std::chrono::hours(1)));
  });
  {
    workflow::UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct sockaddr_in address = test_support::loopback(outer.port());
    ASSERT_EQ(::connect(client.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address),
              0);
    constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    ASSERT_GT(::send(client.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL), 0);
    ASSERT_TRUE(asked_.wait_for(1));
  }
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(result.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(result.error, ECANCELED);
  EXPECT_TRUE(closed_.wait_for(1));
  expect_served();
}

}  // namespace client_test

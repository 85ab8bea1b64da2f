#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/TestServer.h"
#include "workflow/WFHttpStream.h"

// What goes over the wire as the reply to a request.

namespace server_test {
namespace {

// Sends replies whose status, fields and body a test chose.
http_process_t reply_with(const char* status, const std::string& field, const std::string& value,
                          const std::string& body) {
  return [=](WFHttpTask* task) {
    protocol::HttpResponse* response = task->get_resp();
    protocol::HttpUtil::set_response_status(response, std::atoi(status));
    if (!field.empty()) {
      response->add_header_pair(field, value);
    }
    response->append_output_body(body);
  };
}

constexpr const char* kHead = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";

// Runs the process function twice on one connection: what came first did not disturb the second.
std::optional<HttpReply> first_of_two(TestServer& server, const std::string& request,
                                      bool to_head = false) {
  RawClient client = server.client();
  client.send(request + request);
  const auto first = client.reply(to_head);
  const auto second = client.reply(to_head);
  EXPECT_TRUE(first && second);
  if (!first || !second) return std::nullopt;
  EXPECT_EQ(first->status, second->status);
  EXPECT_EQ(first->body, second->body);
  client.half_close();
  EXPECT_EQ(client.ending(), Ending::kClosed);
  return first;
}

}  // namespace

TEST(Reply, DefaultsAreCompleted) {
  TestServer server([](WFHttpTask*) {});
  const auto got = first_of_two(server, kGet);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->head.substr(0, 17), "HTTP/1.1 200 OK\r\n");
  EXPECT_EQ(got->field("Content-Length"), "0");
  const std::string date = got->field("Date");
  EXPECT_EQ(date.size(), 29u);
  EXPECT_EQ(date.substr(date.size() - 4), " GMT");
}

TEST(Reply, UsersDateStays) {
  TestServer server(reply_with("200", "Date", "Sun, 06 Nov 1994 08:49:37 GMT", "x"));
  EXPECT_EQ(first_of_two(server, kGet)->field("Date"), "Sun, 06 Nov 1994 08:49:37 GMT");
}

TEST(Reply, UsersContentLengthIsMadeTrue) {
  TestServer server(reply_with("200", "Content-Length", "3", "12345"));
  const auto got = first_of_two(server, kGet);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->field("Content-Length"), "5");
  EXPECT_EQ(got->body, "12345");
}

TEST(Reply, SeveralContentLengthsBecomeOne) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->add_header_pair("Content-Length", "3");
    task->get_resp()->add_header_pair("content-length", "4");
    task->get_resp()->append_output_body("12345");
  });
  EXPECT_EQ(first_of_two(server, kGet)->field("Content-Length"), "5");
}

TEST(Reply, HeadHasNoBodyButItsLength) {
  TestServer server(reply_with("200", "", "", "12345"));
  const auto got = first_of_two(server, kHead, true);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->field("Content-Length"), "5");
}

TEST(Reply, HeadMayTellALengthWithoutMakingTheBody) {
  TestServer server(reply_with("200", "Content-Length", "123456", ""));
  EXPECT_EQ(first_of_two(server, kHead, true)->field("Content-Length"), "123456");
}

// A proxy moves the request on to its own client task.
TEST(Reply, HeadIsRememberedWhenTheRequestWasMovedAway) {
  TestServer server([](WFHttpTask* task) {
    protocol::HttpRequest moved = std::move(*task->get_req());
    task->get_resp()->append_output_body(moved.get_method());
  });
  const auto got = first_of_two(server, kHead, true);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->field("Content-Length"), "4");
}

TEST(Reply, CloseIsRememberedWhenTheRequestWasMovedAway) {
  TestServer server(
      [](WFHttpTask* task) { protocol::HttpRequest moved = std::move(*task->get_req()); });
  RawClient client = server.client();
  client.send(get("/", "Connection: close\r\n"));
  EXPECT_EQ(client.reply()->field("Connection"), "close");
  EXPECT_EQ(client.ending(), Ending::kClosed);
  RawClient old = server.client();
  old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.reply()->field("Connection"), "keep-alive");
}

TEST(Reply, NoContentHasNeitherBodyNorLength) {
  TestServer server(reply_with("204", "Content-Length", "5", "12345"));
  EXPECT_EQ(first_of_two(server, kGet)->field("Content-Length"), "");
}

TEST(Reply, NotModifiedHasNoBody) {
  TestServer server(reply_with("304", "Content-Length", "5", "12345"));
  EXPECT_EQ(first_of_two(server, kGet)->field("Content-Length"), "5");
  TestServer without(reply_with("304", "", "", ""));
  EXPECT_EQ(first_of_two(without, kGet)->field("Content-Length"), "");
}

TEST(Reply, ChunkedByTheUserGoesAsItIs) {
  TestServer server(reply_with("200", "Transfer-Encoding", "chunked", "3\r\nabc\r\n0\r\n\r\n"));
  const auto got = first_of_two(server, kGet);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->body, "abc");
  EXPECT_EQ(got->field("Content-Length"), "");
}

// What follows would be read as a part of it, or it as a part of what follows.
TEST(Reply, WhatCouldBeReadInTwoWaysIsAnError) {
  for (const char* body : {"", "abc", "3\r\nabc\r\n", "0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"}) {
    TestServer server(reply_with("200", "Transfer-Encoding", "chunked", body));
    const auto got = first_of_two(server, kGet);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 500) << body;
    EXPECT_EQ(got->body, "");
    EXPECT_EQ(got->field("Transfer-Encoding"), "");
  }
  for (const char* coding : {"gzip", "gzip, chunked", "identity"}) {
    TestServer server(reply_with("200", "Transfer-Encoding", coding, "0\r\n\r\n"));
    const auto got = first_of_two(server, kGet);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 500) << coding;
  }
}

// Behind an interim status its client would wait, and take the next reply for this one's.
TEST(Reply, AnInterimStatusIsAnError) {
  for (const char* status : {"100", "101", "103", "199"}) {
    TestServer server([status](WFHttpTask* task) {
      task->get_resp()->set_status_code(status);
      task->get_resp()->set_reason_phrase("Interim");
      task->get_resp()->add_header_pair("Content-Length", "4");
    });
    for (const char* request : {kGet, kHead}) {
      const auto got = first_of_two(server, request, request == kHead);
      ASSERT_TRUE(got);
      EXPECT_EQ(got->status, 500) << status;
      EXPECT_EQ(got->body, "");
      EXPECT_EQ(got->field("Content-Length"), "0");
    }
  }
}

TEST(Reply, AVersionThatIsNotSpokenIsAnError) {
  for (const char* version : {"HTTP/2.0", "HTTP/0.9", "HTTP/1.2"}) {
    TestServer server([version](WFHttpTask* task) {
      EXPECT_TRUE(task->get_resp()->set_http_version(version));
      task->get_resp()->append_output_body("body");
    });
    const auto got = first_of_two(server, kGet);
    ASSERT_TRUE(got) << version;
    EXPECT_EQ(got->status, 500) << version;
    EXPECT_EQ(got->version, "HTTP/1.1");
    EXPECT_EQ(got->body, "");
  }
}

// RFC 9112, 6.2: a sender must not send both; what reads us could choose the other one.
TEST(Reply, ChunkedLosesContentLength) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->add_header_pair("Content-Length", "2");
    task->get_resp()->add_header_pair("Transfer-Encoding", "chunked");
    task->get_resp()->add_header_pair("Content-Length", "3");
    task->get_resp()->append_output_body("3\r\nabc\r\n0\r\n\r\n");
  });
  const auto got = first_of_two(server, kGet);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->field("Content-Length"), "");
  EXPECT_EQ(got->body, "abc");
}

// RFC 9112, 6.1: no transfer coding where there is no body.
TEST(Reply, NoContentLosesTransferEncoding) {
  TestServer server(reply_with("204", "Transfer-Encoding", "chunked", "0\r\n\r\n"));
  EXPECT_EQ(first_of_two(server, kGet)->field("Transfer-Encoding"), "");
}

TEST(Reply, SplittingIsImpossible) {
  TestServer server([](WFHttpTask* task) {
    protocol::HttpResponse* response = task->get_resp();
    const std::string evil = "v\r\nX-Evil: 1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    EXPECT_FALSE(response->add_header_pair("X-Good", evil));
    EXPECT_FALSE(response->set_header_pair("X-Good", "v\nX-Evil: 1"));
    EXPECT_FALSE(response->set_header_pair("X-Good", "v\rX-Evil: 1"));
    EXPECT_FALSE(response->add_header_pair("X-Evil: 1\r\nX", "v"));
    EXPECT_FALSE(response->add_header_pair("X Evil", "v"));
    EXPECT_FALSE(response->add_header_pair("", "v"));
    EXPECT_FALSE(response->set_reason_phrase("OK\r\nX-Evil: 1"));
    EXPECT_FALSE(response->set_status_code("200 OK\r\nX-Evil: 1\r\n"));
    EXPECT_FALSE(response->set_http_version("HTTP/1.1 200 OK\r\nX-Evil: 1\r\n"));
    response->append_output_body("body");
  });
  const auto got = first_of_two(server, kGet);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->body, "body");
  EXPECT_EQ(got->head.find("Evil"), std::string::npos);
  EXPECT_EQ(got->field("X-Good"), "");
}

TEST(Reply, OwnVersionAndStatus) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->set_status_code("599");
    task->get_resp()->set_reason_phrase("Own Reason");
  });
  EXPECT_EQ(first_of_two(server, kGet)->head.substr(0, 23), "HTTP/1.1 599 Own Reason");
}

TEST(Reply, StatusThatIsSetAloneGetsItsReasonPhrase) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->set_status_code(std::string(task->get_req()->get_request_uri()).substr(1));
    WFHttpStream::begin(task).write("text");
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(get("/404"))->head.substr(0, 22), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(client.ask(get("/799"))->head.substr(0, 20), "HTTP/1.1 799 Unknown");
}

TEST(Reply, BodyOfManyBlocks) {
  constexpr int kBlocks = 1000;
  static const std::string block(97, 'b');
  TestServer server([](WFHttpTask* task) {
    for (int i = 0; i < kBlocks; i++) {
      task->get_resp()->append_output_body(std::to_string(i) + ",");
      task->get_resp()->append_output_body_nocopy(block);
    }
  });
  std::string expected;
  for (int i = 0; i < kBlocks; i++) {
    expected += std::to_string(i) + "," + block;
  }
  EXPECT_EQ(first_of_two(server, kGet)->body, expected);
}

TEST(Reply, ReceivedBodyGoesBackWithoutCopy) {
  TestServer server([](WFHttpTask* task) {
    const void* body = nullptr;
    size_t size = 0;
    task->get_req()->get_parsed_body(&body, &size);
    task->get_resp()->append_output_body_nocopy(body, size);
  });
  EXPECT_EQ(first_of_two(server, post("/", "there and back"))->body, "there and back");
}

TEST(Reply, LargeToASlowReader) {
  constexpr size_t kSize = size_t{6} * 1024 * 1024 + 7;
  static const std::string large = [] {
    std::string text;
    for (size_t i = 0; text.size() < kSize; i++) {
      text += std::to_string(i) + " ";
    }
    text.resize(kSize);
    return text;
  }();
  std::atomic<int> state{WFT_STATE_UNDEFINED};
  TestServer server([&](WFHttpTask* task) {
    task->get_resp()->append_output_body_nocopy(large);
    task->set_callback([&](WFHttpTask* each) { state = each->get_state(); });
  });
  RawClient client(server.port(), 4096);
  client.send(get("/1") + get("/2"));
  ASSERT_TRUE(eventually([&] { return server.requests() == 1; }));
  EXPECT_EQ(state, WFT_STATE_UNDEFINED);  // far more than the socket takes
  EXPECT_TRUE(client.body() == large);
  EXPECT_TRUE(client.body() == large);
  EXPECT_TRUE(eventually([&] { return state == WFT_STATE_SUCCESS; }));
}

TEST(Reply, CallbackSeesSuccess) {
  test_support::Tally called;
  std::atomic<int> state{-2};
  std::atomic<int> error{-2};
  TestServer server([&](WFHttpTask* task) {
    EXPECT_EQ(task->get_state(), WFT_STATE_TOREPLY);
    task->set_callback([&](WFHttpTask* each) {
      state = each->get_state();
      error = each->get_error();
      called.add();
    });
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  ASSERT_TRUE(called.wait_for(1));
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
  EXPECT_EQ(error, 0);
}

TEST(Reply, NoreplyClosesWithoutAWord) {
  std::atomic<int> state{-2};
  TestServer server([&](WFHttpTask* task) {
    task->noreply();
    task->set_callback([&](WFHttpTask* each) { state = each->get_state(); });
  });
  RawClient client = server.client();
  client.send(kGet);
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_EQ(state, WFT_STATE_NOREPLY);
}

TEST(Reply, NoreplyMayBeDecidedLate) {
  TestServer server([](WFHttpTask* task) {
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task(20000, [task](WFTimerTask*) { task->noreply(); }));
  });
  RawClient client = server.client();
  client.send(kGet);
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(server.has_connections(0));
}

TEST(Reply, PushGoesAheadOfTheReply) {
  TestServer server([](WFHttpTask* task) {
    const std::string early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    EXPECT_EQ(task->push(early.data(), early.size()), static_cast<int>(early.size()));
    series_of(task)->push_back(WFTaskFactory::create_timer_task(20000, [task](WFTimerTask*) {
      const std::string again = "HTTP/1.1 102 Processing\r\n\r\n";
      EXPECT_EQ(task->push(again.data(), again.size()), static_cast<int>(again.size()));
    }));
    echo(task);
  });
  RawClient client = server.client();
  client.send(kGet);
  EXPECT_EQ(client.status(), 103);
  EXPECT_EQ(client.status(), 102);
  EXPECT_EQ(client.body(), "GET / ");
}

TEST(Reply, PushIsBufferedAndBounded) {
  constexpr size_t kPiece = size_t{64} * 1024;
  std::atomic<size_t> pushed{0};
  std::atomic<bool> full{false};
  TestServer server([&](WFHttpTask* task) {
    const std::string piece(kPiece, 'p');
    while (task->push(piece.data(), piece.size()) > 0) {
      pushed += piece.size();
      ASSERT_LT(pushed, size_t{64} * 1024 * 1024);
    }
    EXPECT_EQ(errno, ENOBUFS);
    full = true;
  });
  RawClient client(server.port(), 4096);
  client.send(kGet);
  ASSERT_TRUE(eventually([&] { return pushed > 0; }));
  // All that was taken arrives, then the reply.
  ASSERT_TRUE(eventually([&] { return full.load(); }));
  for (size_t taken = 0, left = pushed; left > 0; left -= taken) {
    taken = client.take(left);
    ASSERT_GT(taken, 0u);
  }
  EXPECT_EQ(client.status(), 200);
}

TEST(Reply, PushAfterTheReplyIsRefused) {
  test_support::Tally called;
  TestServer server([&](WFHttpTask* task) {
    task->set_callback([&](WFHttpTask* each) {
      EXPECT_EQ(each->push("x", 1), -1);
      EXPECT_EQ(errno, ENOTCONN);
      called.add();
    });
  });
  RawClient client = server.client();
  client.send(get("/", "Connection: close\r\n"));
  EXPECT_EQ(client.status(), 200);
  ASSERT_TRUE(called.wait_for(1));
  EXPECT_TRUE(client.ended());
}

}  // namespace server_test

// HTTP handlers that are coroutines.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>

#include "support/Loopback.h"
#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;

WFCo<> answer_late(WFHttpTask* request) {
  const std::string uri = request->get_req()->get_request_uri();
  (co_await wf::sleep(1ms)).check();
  if (uri == "/throw") throw std::runtime_error("broken");
  request->get_resp()->append_output_body("answer to " + uri);
}

struct Answer {
  WFEnd end;
  std::string status;
  std::string body;
};

WFCo<Answer> ask(std::string url) {
  auto response = co_await WFTaskFactory::create_http_task(url, 0, 0, nullptr);
  Answer answer;
  answer.end = response;
  if (response) {
    answer.status = response.value->get_status_code();
    const void* body = nullptr;
    size_t size = 0;
    response.value->get_parsed_body(&body, &size);
    answer.body.assign(static_cast<const char*>(body), size);
  }
  co_return answer;
}

WFCo<> ask_both(std::string base, Tally& tally) {
  const Answer good = co_await ask(base + "/good");
  EXPECT_EQ(good.status, "200");
  EXPECT_EQ(good.body, "answer to /good");
  const Answer bad = co_await ask(base + "/throw");
  EXPECT_EQ(bad.status, "500");
  EXPECT_EQ(bad.body, "");
  tally.add();
}

TEST(CoroutineServe, TheReplyLeavesAfterTheHandlerAndAnExceptionIs500) {
  WFHttpServer server(wf::serve(answer_late));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  Tally tally;
  const std::string base = "http://127.0.0.1:" + std::to_string(test_support::port_of(server));
  wf::task(ask_both, base, std::ref(tally))->start();
  EXPECT_TRUE(tally.wait_for(1));
  server.stop();
}

constexpr size_t kPieces = 20;
constexpr size_t kPieceSize = 100000;

WFCo<> stream_pieces(WFHttpTask* request) {
  auto stream = wf::stream(request);
  for (size_t i = 0; i < kPieces; i++) {
    const WFEnd end = co_await stream.write(std::string(kPieceSize, static_cast<char>('a' + i)));
    EXPECT_TRUE(end);
    EXPECT_LE(stream.handle().unsent(), size_t{64} * 1024);
  }
}

WFCo<> read_pieces(std::string url) {
  WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 0, nullptr, nullptr));
  std::string text;
  while (auto piece = co_await chunks.next()) {
    text += *piece;
    (co_await wf::sleep(0ms)).check();
  }
  EXPECT_EQ(chunks.end(), (WFEnd{WFT_STATE_SUCCESS, 0}));
  EXPECT_STREQ(chunks.response().get_status_code(), "200");
  EXPECT_EQ(text.size(), kPieces * kPieceSize);
  for (size_t i = 0; i < kPieces && text.size() == kPieces * kPieceSize; i++) {
    EXPECT_EQ(text[i * kPieceSize], static_cast<char>('a' + i));
    EXPECT_EQ(text[(i + 1) * kPieceSize - 1], static_cast<char>('a' + i));
  }
}

TEST(CoroutineServe, StreamsAreWrittenAndReadPieceByPiece) {
  WFHttpServer server(wf::serve(stream_pieces));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  wf::wait(read_pieces, url);
  server.stop();
}

// Writes until the client has left, and counts that.
WFCo<> stream_for_ever(WFHttpTask* request, Tally& left) {
  auto stream = wf::stream(request);
  while (co_await stream.write(std::string(kPieceSize, 'x'))) {
  }
  left.add();
}

TEST(CoroutineServe, AReaderMayStopReading) {
  Tally left;
  const auto handler = [&left](WFHttpTask* request) { return stream_for_ever(request, left); };
  WFHttpServer server(wf::serve(handler));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  const auto run = [&url]() -> WFCo<> {
    { WFCoChunks unread(WFHttpChunkedClient::create_chunked_task(url, 0, nullptr, nullptr)); }
    WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 0, nullptr, nullptr));
    auto piece = co_await chunks.next();
    EXPECT_TRUE(piece);
    EXPECT_STREQ(chunks.response().get_status_code(), "200");
  };
  wf::wait(run);
  EXPECT_TRUE(left.wait_for(1));
  server.stop();
}

TEST(CoroutineServe, ADeadlineEndsAReader) {
  Tally left;
  const auto handler = [&left](WFHttpTask* request) -> WFCo<> {
    request->cancel_on_closed();
    auto stream = wf::stream(request);
    EXPECT_TRUE(co_await stream.write("first"));
    EXPECT_FALSE(co_await wf::sleep(1h));
    left.add();
  };
  WFHttpServer server(wf::serve(handler));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  const auto run = [&url]() -> WFCo<> {
    WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 0, nullptr, nullptr));
    auto piece = co_await chunks.next();
    EXPECT_EQ(piece, "first");
    auto none = co_await wf::within(1ms, chunks.next());
    EXPECT_FALSE(none);
    EXPECT_EQ(chunks.end(), (WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT}));
  };
  wf::wait(run);
  EXPECT_TRUE(left.wait_for(1));
  server.stop();
}

WFCo<> events(WFHttpTask* request) {
  auto stream = wf::event_stream(request);
  WFServerEvent event;
  event.data = "one";
  EXPECT_TRUE(co_await stream.send_event(event));
  event.id = "two\nlines";
  EXPECT_EQ(co_await stream.send_event(event), (WFEnd{WFT_STATE_SYS_ERROR, EINVAL}));
}

TEST(CoroutineServe, EventsAreSentOneByOne) {
  WFHttpServer server(wf::serve(events));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  const Answer answer = wf::wait(ask, url);
  EXPECT_NE(answer.body.find("data: one"), std::string::npos) << answer.body;
  server.stop();
}

TEST(CoroutineServe, AnExceptionCutsAStreamedReply) {
  const auto handler = [](WFHttpTask* request) -> WFCo<> {
    auto stream = wf::stream(request);
    (co_await stream.write("a part")).check();
    throw std::runtime_error("broken");
  };
  WFHttpServer server(wf::serve(handler));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  EXPECT_FALSE(wf::wait(ask, url).end);
  server.stop();
}

TEST(CoroutineServe, AClientThatLeavesEndsTheWaitsOfTheHandler) {
  Tally begun;
  Tally ended;
  const auto handler = [&](WFHttpTask*) -> WFCo<> {
    begun.add();
    EXPECT_EQ(co_await wf::sleep(1h), (WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}));
    ended.add();
  };
  WFHttpServer server(wf::serve(handler));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  const auto run = [&]() -> WFCo<> {
    const auto body = [&](WFScope& scope) -> WFCo<> {
      scope.start([&begun, scope]() -> WFCo<> {
        while (begun.count() == 0)
          (co_await wf::sleep(1ms)).check();
        scope.cancel();
      });
      auto answer = co_await WFTaskFactory::create_http_task(url, 0, 0, nullptr);
      EXPECT_EQ(answer.error, ECANCELED);
    };
    co_await wf::scope(body);
  };
  wf::wait(run);
  EXPECT_TRUE(ended.wait_for(1));
  server.stop();
}

TEST(CoroutineServe, ADeadlineIsOneLine) {
  const auto handler = [](WFHttpTask* request) -> WFCo<> {
    request->set_deadline(1ms);
    const WFEnd end = co_await wf::sleep(1h);
    request->get_resp()->set_status_code(end.error == ETIMEDOUT ? "504" : "200");
  };
  WFHttpServer server(wf::serve(handler));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  EXPECT_EQ(wf::wait(ask, url).status, "504");
  server.stop();
}

}  // namespace

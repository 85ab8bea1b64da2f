#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/TaskEnds.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpStream.h"

// Replies that are sent piece by piece: their framing, their pace, their end.

namespace server_test {
namespace {

using std::chrono::milliseconds;
using test_support::pattern;

// A handle that another thread takes from the server's.
class Handle {
 public:
  void put(WFHttpStream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stream_ = std::move(stream);
    is_set_ = true;
  }
  WFHttpStream wait() {
    EXPECT_TRUE(eventually([this] { return is_set_.load(); }));
    const std::lock_guard<std::mutex> lock(mutex_);
    return stream_;
  }

 private:
  std::mutex mutex_;
  WFHttpStream stream_;
  std::atomic<bool> is_set_{false};
};

// The heartbeats that have come; nothing is taken.
size_t beats_arrived(const RawClient& client) {
  std::string bytes(4096, '\0');
  const ssize_t n = ::recv(client.fd(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  size_t beats = 0;
  for (size_t at = 0; (at = bytes.find(":\n\n", at)) != std::string::npos; at++) {
    beats++;
  }
  return beats;
}

// Begins a stream, gives its handle away and waits for "held".
http_process_t held(Handle& handle, TaskEnds& ends, bool of_events = false) {
  return [&handle, &ends, of_events](WFHttpTask* task) {
    ends.note(task);
    WFHttpStream stream = of_events ? WFHttpStream::begin_events(task) : WFHttpStream::begin(task);
    ASSERT_TRUE(stream);
    series_of(task)->push_back(WFTaskFactory::create_timer_task("held", 3600, 0, nullptr));
    handle.put(stream);
  };
}

}  // namespace

TEST(HttpStream, SendsChunksAsTheyAreWritten) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->add_header_pair("X-Kind", "stream");
    task->get_resp()->append_output_body("first ");
    WFHttpStream stream = WFHttpStream::begin(task);
    ASSERT_TRUE(stream);
    EXPECT_EQ(stream.write("second "), 0);
    EXPECT_EQ(stream.write(""), 0);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        0, 10'000'000, [stream](WFTimerTask*) { EXPECT_EQ(stream.write("third"), 0); }));
  });
  RawClient client = server.client();
  for (int i = 0; i < 3; i++) {  // the connection is kept
    const auto reply = client.ask(kGet);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->field("Transfer-Encoding"), "chunked");
    EXPECT_EQ(reply->field("Content-Length"), "");
    EXPECT_EQ(reply->field("X-Kind"), "stream");
    EXPECT_EQ(reply->body, "first second third");
  }
}

TEST(HttpStream, WithoutABody) {
  TestServer server([](WFHttpTask* task) { ASSERT_TRUE(WFHttpStream::begin(task)); });
  RawClient client = server.client();
  for (int i = 0; i < 2; i++) {
    const auto reply = client.ask(kGet);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->body, "");
  }
}

TEST(HttpStream, ToHttp10EndsWithTheConnection) {
  TestServer server([](WFHttpTask* task) {
    WFHttpStream stream = WFHttpStream::begin(task);
    EXPECT_EQ(stream.write("all of "), 0);
    EXPECT_EQ(stream.write("it"), 0);
  });
  RawClient client = server.client();
  const auto reply = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->field("Transfer-Encoding"), "");
  EXPECT_EQ(reply->field("Connection"), "close");
  EXPECT_EQ(reply->body, "all of it");
}

TEST(HttpStream, WhereThereIsNoBodyWritesAreThrownAway) {
  TestServer server([](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/304") {
      protocol::HttpUtil::set_response_status(task->get_resp(), 304);
    }
    WFHttpStream stream = WFHttpStream::begin(task);
    EXPECT_EQ(stream.write("nobody reads this"), 0);
  });
  RawClient client = server.client();
  const auto head = client.ask("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", true);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->field("Transfer-Encoding"), "chunked");
  const auto unchanged = client.ask(get("/304"));
  ASSERT_TRUE(unchanged);
  EXPECT_EQ(unchanged->status, 304);
  EXPECT_EQ(unchanged->field("Transfer-Encoding"), "");
  EXPECT_EQ(client.ask(get("/200"))->status, 200);
}

TEST(HttpStream, WithAnInterimStatusIsAnError) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->set_status_code("103");
    errno = 0;
    EXPECT_FALSE(WFHttpStream::begin(task));
    EXPECT_EQ(errno, EINVAL);
  });
  RawClient client = server.client();
  client.send(std::string(kGet) + kGet);
  for (int i = 0; i < 2; i++) {
    const auto got = client.reply();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 500);
  }
}

TEST(HttpStream, BeginsOnceAndOnServersOnly) {
  TestServer server([](WFHttpTask* task) {
    WFHttpStream stream = WFHttpStream::begin(task);
    EXPECT_FALSE(WFHttpStream::begin(task));
    EXPECT_EQ(errno, EALREADY);
    EXPECT_EQ(task->push("raw", 3), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(stream.write("x"), 0);
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->body, "x");
  WFHttpTask* other = WFTaskFactory::create_http_task("http://127.0.0.1:1/", 0, 0, nullptr);
  EXPECT_FALSE(WFHttpStream::begin(other));
  EXPECT_EQ(errno, EINVAL);
  other->dismiss();
  const WFHttpStream none;
  EXPECT_EQ(none.write("x"), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_TRUE(none.closed());
}

TEST(HttpStream, AWriteTaskOfAnySizeKeepsPaceWithTheClient) {
  constexpr size_t kSize = 20 * 1024 * 1024;
  const std::string body = pattern(kSize);
  std::atomic<size_t> most{0};
  TestServer server([&](WFHttpTask* task) {
    WFHttpStream stream = WFHttpStream::begin(task);
    for (size_t at = 0; at < kSize; at += kSize / 4) {
      series_of(task)->push_back(
          stream.create_write_task(body.substr(at, kSize / 4), [&, stream](WFStreamTask* ended) {
            EXPECT_EQ(ended->get_state(), WFT_STATE_SUCCESS);
            most = std::max(most.load(), stream.unsent());
          }));
    }
  });
  RawClient client(server.port(), 4096);
  const auto reply = client.ask(kGet);
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->body == body);
  EXPECT_LE(most, size_t{64 * 1024});
}

TEST(HttpStream, ARoomTaskEndsWhenTheClientHasTakenEnough) {
  Handle handle;
  TaskEnds ends;
  std::atomic<int> rooms{0};
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFHttpStream stream = WFHttpStream::begin(task);
    const std::string piece(64 * 1024, 'x');
    while (stream.write(piece) == 0) {
    }
    EXPECT_EQ(errno, ENOBUFS);
    EXPECT_GT(stream.unsent(), size_t{900 * 1024});
    EXPECT_LE(stream.unsent(), size_t{1024 * 1024});
    series_of(task)->push_back(stream.create_room_task([&, stream](WFStreamTask* room) {
      EXPECT_EQ(room->get_state(), WFT_STATE_SUCCESS);
      EXPECT_LE(stream.unsent(), size_t{16 * 1024});
      rooms++;
    }));
    // There is room now: it ends at once.
    series_of(task)->push_back(stream.create_room_task([&](WFStreamTask*) { rooms++; }));
  });
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  WFFacilities::usleep(50'000);  // nobody reads: nothing may happen
  EXPECT_EQ(rooms, 0);
  EXPECT_EQ(client.status(), 200);
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(rooms, 2);
  EXPECT_EQ(ends.state, WFT_STATE_SUCCESS);
}

TEST(HttpStream, TheLeavingClientEndsIt) {
  for (const bool resets : {false, true}) {
    Handle handle;
    TaskEnds ends;
    TestServer server(held(handle, ends));
    RawClient client = server.client();
    ASSERT_TRUE(client.send(kGet));
    const WFHttpStream stream = handle.wait();
    EXPECT_FALSE(stream.closed());
    EXPECT_EQ(stream.write("to nobody"), 0);
    if (resets) {
      client.reset();
    } else {
      client.close();
    }
    ASSERT_TRUE(ends.reached(1)) << "the timer that delays it ends at once";
    EXPECT_TRUE(stream.closed());
    EXPECT_EQ(stream.write("x"), -1);
    EXPECT_TRUE(server.has_connections(0));
  }
}

TEST(HttpStream, TheLeavingClientEndsStreamTasks) {
  std::atomic<int> error{0};
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFHttpStream stream = WFHttpStream::begin(task);
    series_of(task)->push_back(
        stream.create_write_task(std::string(50 * 1024 * 1024, 'x'), [&](WFStreamTask* ended) {
          EXPECT_EQ(ended->get_state(), WFT_STATE_SYS_ERROR);
          error = ended->get_error();
        }));
  });
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  EXPECT_GT(client.take(1), 0u);
  client.reset();
  ASSERT_TRUE(ends.reached(1));
  EXPECT_TRUE(error == ECONNRESET || error == EPIPE) << error;
  EXPECT_EQ(ends.state, WFT_STATE_SYS_ERROR);
}

TEST(HttpStream, AClientThatDoesNotReadIsCutOff) {
  std::atomic<int> error{0};
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    task->set_send_timeout(200);
    WFHttpStream stream = WFHttpStream::begin(task);
    series_of(task)->push_back(
        stream.create_write_task(std::string(50 * 1024 * 1024, 'x'),
                                 [&](WFStreamTask* ended) { error = ended->get_error(); }));
  });
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(error, ETIMEDOUT);
  EXPECT_EQ(ends.error, ETIMEDOUT);
  EXPECT_TRUE(server.has_connections(0));
}

TEST(HttpStream, NoreplyCutsItOff) {
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFHttpStream stream = WFHttpStream::begin(task);
    EXPECT_EQ(stream.write("half of"), 0);
    task->noreply();
  });
  RawClient client = server.client();
  EXPECT_FALSE(client.ask(kGet)) << "it must not look whole";
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.state, WFT_STATE_NOREPLY);
}

TEST(HttpStream, HandlesOutliveEverything) {
  Handle handle;
  TaskEnds ends;
  {
    TestServer server([&](WFHttpTask* task) {
      ends.note(task);
      WFHttpStream stream = WFHttpStream::begin(task);
      handle.put(stream);
    });
    EXPECT_EQ(server.client().ask(kGet)->status, 200);
    ASSERT_TRUE(ends.reached(1));
  }
  const WFHttpStream stream = handle.wait();
  EXPECT_EQ(stream.write("x"), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_TRUE(stream.closed());
  EXPECT_EQ(stream.unsent(), 0u);
  WFFacilities::WaitGroup done(1);
  stream
      .create_room_task([&](WFStreamTask* ended) {
        EXPECT_EQ(ended->get_error(), ENOTCONN);
        done.done();
      })
      ->start();
  done.wait();
}

TEST(HttpStream, OverTls) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"DNS:localhost"});
  ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str()), 1);
  const std::string body = pattern(3'000'000);
  TestServer server(
      [&](WFHttpTask* task) {
        WFHttpStream stream = WFHttpStream::begin(task);
        series_of(task)->push_back(stream.create_write_task(body, nullptr));
      },
      http_params(), &certificate);
  ASSERT_TRUE(server.started());
  WFFacilities::WaitGroup done(1);
  WFHttpTask* client = WFTaskFactory::create_http_task(
      "https://localhost:" + std::to_string(server.port()) + "/", 0, 0, [&](WFHttpTask* task) {
        EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
        EXPECT_TRUE(protocol::HttpUtil::decode_chunked_body(task->get_resp()) == body);
        done.done();
      });
  client->start();
  done.wait();
}

TEST(HttpStream, ManyWritersOfOneStream) {
  Handle handle;
  TaskEnds ends;
  TestServer server(held(handle, ends));
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  const WFHttpStream stream = handle.wait();
  std::atomic<size_t> written{0};
  std::vector<std::jthread> writers;
  for (int i = 0; i < 4; i++) {
    writers.emplace_back([&stream, &written, i] {
      const std::string text(static_cast<size_t>(100 * (i + 1)), static_cast<char>('a' + i));
      for (int k = 0; k < 200; k++) {
        written += stream.write(text) == 0 ? text.size() : 0;
      }
    });
  }
  writers.clear();  // joins them
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1);
  EXPECT_EQ(client.body().size(), written);
  EXPECT_GT(written, 0u);
}

TEST(HttpStream, AStopWithALimitEndsIt) {
  Handle handle;
  TaskEnds ends;
  TestServer server(held(handle, ends));
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  const WFHttpStream stream = handle.wait();
  EXPECT_FALSE(stream.stopping());
  const WFStopResult result = server->stop(0, WF_STOP_ANSWER);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 0u);
  EXPECT_FALSE(client.reply()) << "a reply that has begun is not made another";
  EXPECT_EQ(ends.error, ECANCELED);
  EXPECT_EQ(stream.write("x"), -1);
}

TEST(ServerEvents, AreWrittenAsBrowsersReadThem) {
  TestServer server([](WFHttpTask* task) {
    WFHttpStream events = WFHttpStream::begin_events(task);
    ASSERT_TRUE(events);
    EXPECT_EQ(events.send_event({"one line", "", "", -1}), 0);
    EXPECT_EQ(events.send_event({"two\nlines\r\nor three\r", "kind", "7", 1500}), 0);
    EXPECT_EQ(events.send_comment("not seen"), 0);
    EXPECT_EQ(events.send_event({"x", "two\nlines", "", -1}), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(events.send_event({"x", "", std::string("nul\0", 4), -1}), -1);
  });
  const auto reply = server.client().ask(kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->field("Content-Type"), "text/event-stream");
  EXPECT_EQ(reply->field("Cache-Control"), "no-cache");
  EXPECT_EQ(reply->body,
            "data: one line\n\n"
            "event: kind\nid: 7\nretry: 1500\ndata: two\ndata: lines\ndata: or three\ndata: \n\n"
            ": not seen\n\n");
}

TEST(ServerEvents, HeartbeatsFillSilence) {
  Handle handle;
  TaskEnds ends;
  TestServer server(held(handle, ends, true));
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  const WFHttpStream stream = handle.wait();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(stream.set_heartbeat(20), 0);
  EXPECT_TRUE(eventually([&client] { return beats_arrived(client) >= 10; }));
  EXPECT_EQ(stream.set_heartbeat(0), 0);
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1);
  const std::string body = client.body();
  const size_t beats = body.size() / 3;
  EXPECT_LE(beats, static_cast<size_t>(took / milliseconds(20)) + 1);
  for (size_t i = 0; i < beats; i++) {
    EXPECT_EQ(body.substr(i * 3, 3), ":\n\n");
  }
}

// A heartbeat may become due just when the reply ends. Its time is not a limit of what follows.
TEST(ServerEvents, HeartbeatsLeaveTheConnectionToTheNextRequest) {
  TestServer server([](WFHttpTask* task) {
    const WFHttpStream stream = WFHttpStream::begin_events(task);
    EXPECT_EQ(stream.set_heartbeat(1), 0);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(1000, nullptr));
  });
  RawClient client = server.client();
  for (int i = 0; i < 300; i++) {
    ASSERT_TRUE(client.send(kGet)) << i;
    ASSERT_TRUE(client.reply().has_value()) << i;
  }
}

TEST(ServerEvents, NoHeartbeatInOtherStreams) {
  TestServer server([](WFHttpTask* task) {
    EXPECT_EQ(WFHttpStream::begin(task).set_heartbeat(10), -1);
    EXPECT_EQ(errno, EINVAL);
  });
  EXPECT_EQ(server.client().ask(kGet)->status, 200);
}

// Clients that come and go while others write, and a stop in the end.
TEST(HttpStream, MeetsEverything) {
  std::atomic<int> begun{0};
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    begun++;
    ends.note(task);
    WFHttpStream stream = WFHttpStream::begin_events(task);
    stream.set_heartbeat(1);
    for (int i = 0; i < 3; i++) {
      series_of(task)->push_back(stream.create_write_task(std::string(100'000, 'x'), nullptr));
      series_of(task)->push_back(WFTaskFactory::create_timer_task(1000, nullptr));
    }
  });
  std::atomic<bool> stopped{false};
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; i++) {
    clients.emplace_back([&, i] {
      for (int k = 0; !stopped; k++) {
        RawClient client(server.port(), 4096);
        if (!client.send(kGet)) continue;
        if (k % 3 == 0) {
          client.take(100);
          client.reset();
        } else if (k % 3 == 1) {
          client.take(static_cast<size_t>(i) * 1000);
        } else {
          client.status();
        }
      }
    });
  }
  WFFacilities::usleep(1'000'000);
  EXPECT_TRUE(eventually([&] { return begun > 10; }));
  const WFStopResult result = server->stop(0, WF_STOP_DROP);
  stopped = true;
  clients.clear();  // joins them
  EXPECT_EQ(result.running, 0u);
  EXPECT_EQ(ends.tasks, begun);
}

}  // namespace server_test

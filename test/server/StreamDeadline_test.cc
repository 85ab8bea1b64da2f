// Deadlines over the pieces of a streamed reply, to clients that do not read.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>

#include "support/TestServer.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFTimer.h"

namespace server_test {
namespace {

using std::chrono::milliseconds;

// More than all buffers on the way take.
constexpr size_t kMuch = size_t{64} * 1024 * 1024;
constexpr milliseconds kSoon{50};

// Notes how tasks end: a name, then + for SUCCESS, ! for ETIMEDOUT, else the error.
class Notes {
 public:
  template <class Task>
  std::function<void(Task*)> on(const std::string& name) {
    return [this, name](Task* task) { add(name, task->get_state(), task->get_error()); };
  }
  void reply(WFHttpTask* task) {
    task->set_callback([this](WFHttpTask* ended) {
      add("reply", ended->get_state(), ended->get_error());
      replies_++;
    });
  }
  bool replied() {
    return eventually([this] { return replies_ == 1; });
  }
  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  void add(const std::string& name, int state, int error) {
    const std::string how = error == ETIMEDOUT ? "!" : "(" + std::to_string(error) + ")";
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ += name + (state == WFT_STATE_SUCCESS ? "+" : how) + " ";
  }

  mutable std::mutex mutex_;
  std::string text_;
  std::atomic<int> replies_{0};
};

std::string all_of(RawClient& client) {
  std::string bytes;
  for (std::string more = client.take_text(1 << 20); !more.empty();
       more = client.take_text(1 << 20)) {
    bytes += more;
  }
  return bytes;
}

bool looks_whole(const std::string& bytes) {
  return bytes.size() >= 5 && bytes.compare(bytes.size() - 5, 5, "0\r\n\r\n") == 0;
}

}  // namespace

TEST(StreamDeadline, EndsAPieceAndTheReplyDoesNotLookWhole) {
  Notes notes;
  TestServer server([&](WFHttpTask* task) {
    notes.reply(task);
    const WFHttpStream stream = WFHttpStream::begin(task);
    WFDeadlineTask* const limit = with_deadline(
        stream.create_write_task(std::string(kMuch, 'x'), notes.on<WFStreamTask>("big")), kSoon,
        notes.on<WFDeadlineTask>("D"));
    *limit->sub_series() << stream.create_write_task("more", notes.on<WFStreamTask>("next"));
    *series_of(task) << limit << stream.create_write_task("end", notes.on<WFStreamTask>("last"))
                     << WFTimer::create(milliseconds(0), [stream](WFTimerTask*) {
                          EXPECT_TRUE(stream.closed());
                          EXPECT_EQ(stream.write("x"), -1);
                          EXPECT_EQ(errno, ETIMEDOUT);
                        });
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  EXPECT_TRUE(notes.replied());
  EXPECT_EQ(notes.text(), "big! next! D! last! reply! ");
  const std::string bytes = all_of(client);
  EXPECT_LT(bytes.size(), kMuch);
  EXPECT_FALSE(looks_whole(bytes));
  EXPECT_TRUE(server.has_connections(0));
}

TEST(StreamDeadline, LeavesAPieceThatIsInTime) {
  Notes notes;
  TestServer server([&](WFHttpTask* task) {
    notes.reply(task);
    const WFHttpStream stream = WFHttpStream::begin(task);
    WFDeadlineTask* const limit =
        with_deadline(stream.create_write_task("some", notes.on<WFStreamTask>("w")),
                      std::chrono::hours(1), notes.on<WFDeadlineTask>("D"));
    *limit->sub_series() << stream.create_room_task(notes.on<WFStreamTask>("r"));
    series_of(task)->push_back(limit);
  });
  RawClient client = server.client();
  const auto reply = client.ask(kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "some");
  EXPECT_TRUE(notes.replied());
  EXPECT_EQ(notes.text(), "w+ r+ D+ reply+ ");
}

// Nothing is missing then: the reply goes on.
TEST(StreamDeadline, ATaskThatOnlyWaitsForRoomDoesNotEndTheStream) {
  Notes notes;
  const std::string fill(700'000, 'x');
  TestServer server([&](WFHttpTask* task) {
    notes.reply(task);
    const WFHttpStream stream = WFHttpStream::begin(task);
    while (stream.write(fill) == 0) {
    }
    EXPECT_EQ(errno, ENOBUFS);
    *series_of(task) << with_deadline(stream.create_room_task(notes.on<WFStreamTask>("r")), kSoon,
                                      notes.on<WFDeadlineTask>("D"))
                     << stream.create_write_task("end", notes.on<WFStreamTask>("last"));
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  EXPECT_TRUE(eventually([&] { return notes.text() == "r! D! "; }));
  const auto reply = client.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body.compare(reply->body.size() - 4, 4, "xend"), 0);
  EXPECT_TRUE(notes.replied());
  EXPECT_EQ(notes.text(), "r! D! last+ reply+ ");
}

TEST(StreamDeadline, APieceThatDoesNotBeginEndsTheStreamToo) {
  Notes notes;
  TestServer server([&](WFHttpTask* task) {
    notes.reply(task);
    const WFHttpStream stream = WFHttpStream::begin(task);
    EXPECT_EQ(stream.write("begin"), 0);
    WFDeadlineTask* const limit =
        with_deadline(WFTimer::create(std::chrono::hours(1), notes.on<WFTimerTask>("t")), kSoon);
    *limit->sub_series() << stream.create_room_task(notes.on<WFStreamTask>("r"))
                         << stream.create_write_task("w", notes.on<WFStreamTask>("w"));
    series_of(task)->push_back(limit);
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  EXPECT_TRUE(notes.replied());
  EXPECT_EQ(notes.text(), "t! r! w! reply! ");
  const std::string bytes = all_of(client);
  EXPECT_NE(bytes.find("begin"), std::string::npos);
  EXPECT_FALSE(looks_whole(bytes));
}

// Two pieces wait, the second with a deadline.
TEST(StreamDeadline, EndsThoseInFrontOfItToo) {
  Notes notes;
  TestServer server([&](WFHttpTask* task) {
    notes.reply(task);
    const WFHttpStream stream = WFHttpStream::begin(task);
    ParallelWork* const both = Workflow::create_parallel_work(nullptr);
    both->add_series(Workflow::create_series_work(
        stream.create_write_task(std::string(kMuch, 'x'), notes.on<WFStreamTask>("first")),
        nullptr));
    both->add_series(Workflow::create_series_work(
        with_deadline(stream.create_write_task("second", nullptr), kSoon), nullptr));
    series_of(task)->push_back(both);
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  EXPECT_TRUE(notes.replied());
  EXPECT_EQ(notes.text(), "first! reply! ");
}

TEST(StreamDeadline, AClientThatLeavesCountsFirst) {
  Notes notes;
  TestServer server([&](WFHttpTask* task) {
    notes.reply(task);
    const WFHttpStream stream = WFHttpStream::begin(task);
    series_of(task)->push_back(with_deadline(
        stream.create_write_task(std::string(kMuch, 'x'), notes.on<WFStreamTask>("big")),
        std::chrono::hours(1)));
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  EXPECT_TRUE(eventually([&] { return server.processed() == 1; }));
  client.close();
  EXPECT_TRUE(notes.replied());
  const std::string reset = std::to_string(ECONNRESET);
  const std::string broken = std::to_string(EPIPE);  // by which the socket tells first
  const std::string text = notes.text();
  EXPECT_TRUE(text == "big(" + reset + ") reply(" + reset + ") " ||
              text == "big(" + broken + ") reply(" + broken + ") ")
      << text;
}

}  // namespace server_test

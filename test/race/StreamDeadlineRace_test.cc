// Deadlines of a few microseconds over the pieces of streamed replies, to clients that read when
// they like, or leave. Then an account of every task, and of what the clients got.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFHttpStream.h"

namespace {

using server_test::kGet;
using server_test::RawClient;
using server_test::TestServer;
using std::chrono::microseconds;
using test_support::Tally;
using test_support::TestRandom;

constexpr int kMaxPieceUs = 800;
constexpr int kMaxPauseUs = 4000;
constexpr size_t kMaxBytes = size_t{1024} * 1024;

// The account of one request. It outlives the tasks of that request.
class StreamAccount {
 public:
  explicit StreamAccount(uint64_t seed, uint64_t number) : random_(seed, number) {}

  void process(WFHttpTask* task) {
    task->set_callback([this](WFHttpTask* ended) {
      reply_state_ = ended->get_state();
      reply_.add();
    });
    const WFHttpStream stream = WFHttpStream::begin(task);
    ParallelWork* const flows = Workflow::create_parallel_work(nullptr);
    for (uint64_t i = 1 + random_.below(3); i > 0; i--) {
      flows->add_series(flow(stream));
    }
    series_of(task)->push_back(flows);
  }

  void check(bool client_left, bool got_whole, size_t got) {
    EXPECT_TRUE(reply_.wait_for(1));
    EXPECT_EQ(reply_.count(), 1U);
    EXPECT_EQ(calls_, created_);
    if (client_left) return;
    EXPECT_EQ(other_errors_, 0);
    EXPECT_EQ(reply_state_ == WFT_STATE_SUCCESS, cut_ == 0);
    EXPECT_EQ(got_whole, cut_ == 0);
    if (got_whole) {
      EXPECT_EQ(got, bytes_);
    }
  }
  long in_time() const { return in_time_; }
  long too_late() const { return too_late_; }

 private:
  SeriesWork* flow(const WFHttpStream& stream) {
    SeriesWork* const series = Workflow::create_series_work(piece(stream), nullptr);
    for (uint64_t more = random_.below(4); more > 0; more--) {
      series->push_back(piece(stream));
    }
    const bool hurries = random_.one_in(2);
    WFDeadlineTask* const task = with_deadline(
        series, hurries ? microseconds(random_.below(kMaxPieceUs)) : microseconds(60'000'000));
    return Workflow::create_series_work(task, nullptr);
  }

  WFStreamTask* piece(const WFHttpStream& stream) {
    created_++;
    if (random_.one_in(3)) {
      return stream.create_room_task([this](WFStreamTask* task) { note(task, 0); });
    }
    const size_t size = 1 + random_.below(kMaxBytes);
    return stream.create_write_task(std::string(size, 'x'),
                                    [this, size](WFStreamTask* task) { note(task, size); });
  }

  void note(const WFStreamTask* task, size_t size) {
    calls_++;
    if (task->get_state() == WFT_STATE_SUCCESS) {
      in_time_++;
      bytes_ += size;
    } else if (task->get_error() == ETIMEDOUT) {
      too_late_++;
      cut_ += size > 0;
    } else {
      other_errors_++;
    }
  }

  TestRandom random_;
  int created_ = 0;
  std::atomic<int> calls_{0};
  std::atomic<long> in_time_{0};
  std::atomic<long> too_late_{0};
  std::atomic<long> cut_{0};
  std::atomic<long> other_errors_{0};
  std::atomic<size_t> bytes_{0};
  std::atomic<int> reply_state_{WFT_STATE_UNDEFINED};
  Tally reply_;
};

}  // namespace

TEST(StreamDeadlineRace, EveryTaskIsToldOnceAndNoReplyLooksWholeThatIsNot) {
  const uint64_t seed = test_support::test_seed();
  std::atomic<StreamAccount*> current{nullptr};
  TestServer server([&](WFHttpTask* task) { current.load()->process(task); });
  long in_time = 0;
  long too_late = 0;
  for (uint64_t i = 0; i < race::rounds(400); i++) {
    TestRandom random(seed, i + 1'000'000);
    StreamAccount account(seed, i);
    current = &account;
    RawClient client(server.port(), 16 * 1024);
    ASSERT_TRUE(client.send(kGet));
    const bool leaves = random.one_in(4);
    std::this_thread::sleep_for(microseconds(random.below(kMaxPauseUs)));  // so that tasks wait
    bool whole = false;
    size_t got = 0;
    if (leaves) {
      client.close();
    } else if (const auto reply = client.reply()) {
      whole = true;
      got = reply->body.size();
    }
    account.check(leaves, whole, got);
    ASSERT_FALSE(HasFailure()) << "in round " << i;
    in_time += account.in_time();
    too_late += account.too_late();
  }
  std::printf("%ld in time, %ld too late\n", in_time, too_late);
  EXPECT_GT(in_time, 0);
  EXPECT_GT(too_late, 0);
}

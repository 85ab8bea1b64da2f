// Deadlines of a few microseconds over the pieces of streamed replies, to clients that read when
// they like, or leave. Then an account of every task, and of what the clients got.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFHttpStream.h"

namespace race {
namespace {

using server_test::kGet;
using server_test::RawClient;
using server_test::TestServer;
using std::chrono::microseconds;
using test_support::Tally;
using test_support::TestRandom;
using workflow::Runtime;

constexpr int kMaxPieceUs = 800;
constexpr uint64_t kMaxPauseUs = 4000;
constexpr size_t kMaxBytes = size_t{1024} * 1024;

// One request, and the account of it. The server has process() called of the round in `current`.
class StreamRound final : public Round {
 public:
  StreamRound(uint64_t number, Runtime* runtime, uint16_t port, std::atomic<StreamRound*>* current)
      : Round(number, runtime),
        random_(test_support::test_seed(), number),
        client_(port, 16 * 1024) {
    *current = this;
    require(client_.send(kGet), "the request was not sent");
  }

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

  std::string finish() override {
    TestRandom random(test_support::test_seed(), number() + 1'000'000);
    const bool leaves = random.one_in(4);
    pause_us(random.below(kMaxPauseUs));  // so that tasks wait
    std::optional<size_t> got;            // how many bytes of a reply that looks whole
    if (leaves) {
      client_.close();
    } else if (const auto reply = client_.reply()) {
      got = reply->body.size();
    }
    require(reply_.wait_for(1) && reply_.count() == 1, "the reply has not ended once");
    require(calls_ == created_, "not every task was told once");
    if (!leaves) {
      require(other_errors_ == 0, "a task has ended for no reason");
      require((reply_state_ == WFT_STATE_SUCCESS) == (cut_ == 0), "the server was told wrongly");
      require(got.has_value() == (cut_ == 0), "whether it was cut is not what the client sees");
      require(!got || *got == bytes_, "the client has other bytes than were written");
    }
    return problem();
  }
  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS     ? in_time_.load()
           : state == WFT_STATE_SYS_ERROR ? too_late_.load()
                                          : 0;
  }

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
  RawClient client_;
  int created_ = 0;
  std::atomic<int> calls_{0};
  std::atomic<size_t> in_time_{0};
  std::atomic<size_t> too_late_{0};
  std::atomic<long> cut_{0};
  std::atomic<long> other_errors_{0};
  std::atomic<size_t> bytes_{0};
  std::atomic<int> reply_state_{WFT_STATE_UNDEFINED};
  Tally reply_;
};

TEST(StreamDeadlineRace, EveryTaskIsToldOnceAndNoReplyLooksWholeThatIsNot) {
  std::atomic<StreamRound*> current{nullptr};
  TestServer server([&](WFHttpTask* task) { current.load()->process(task); });
  expect_each_side_won(run_rounds(rounds(400), begin<StreamRound>(server.port(), &current)), 0);
}

}  // namespace
}  // namespace race

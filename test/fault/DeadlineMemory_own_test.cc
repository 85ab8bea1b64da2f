// Each allocation fails in its turn while tasks with a deadline start and wait: file operations,
// pieces of a streamed reply. Each ends once, and what could not wait has not begun.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>

#include "support/FileProbes.h"
#include "support/MemoryFaults.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFHttpStream.h"

namespace {

using test_support::Tally;

constexpr std::chrono::hours kLong{1};
constexpr size_t kBranches = 3;

class FileDeadlineMemory : public probes::OnEachBackend {
 protected:
  FileDeadlineMemory() : fd_(open(make_file("0123"), O_RDONLY)) {}

  // Starts several reads inside one deadline while the n-th allocation fails (0: none fails).
  // Returns whether an allocation has failed.
  bool read_with_failure(long n) {
    std::array<std::string, kBranches> buffers;
    std::array<std::atomic<int>, kBranches> calls{};
    Tally ended;
    ParallelWork* const all = Workflow::create_parallel_work(nullptr);
    // A timer waits in the same scope, so that the reads are not alone there.
    all->add_series(Workflow::create_series_work(
        WFTaskFactory::create_timer_task(0, 3'000'000, nullptr), nullptr));
    for (size_t i = 0; i < kBranches; i++) {
      buffers[i] = "....";
      const auto told = [&, i](WFFileIOTask* task) {
        calls[i]++;
        const bool done = task->get_state() == WFT_STATE_SUCCESS;
        EXPECT_EQ(task->get_error(), done ? 0 : ENOMEM);
        EXPECT_EQ(buffers[i], done ? "0123" : "....");
      };
      all->add_series(Workflow::create_series_work(
          i == 0 ? WFTaskFactory::create_pread_task(path(), buffers[i].data(), 4, 0, told)
                 : WFTaskFactory::create_pread_task(fd_.get(), buffers[i].data(), 4, 0, told),
          nullptr));
    }
    WFDeadlineTask* const task =
        with_deadline(all, kLong, [&ended](WFDeadlineTask*) { ended.add(); });
    if (n > 0) {
      fault::counts_here = true;
      fault::arm(n);
    }
    task->start();
    EXPECT_TRUE(ended.wait_for(1));
    fault::counts_here = false;
    const bool failed = fault::disarm() > 0;
    failures_ += failed;
    for (const auto& each : calls) {
      EXPECT_EQ(each, 1);
    }
    return failed;
  }

  int failures_ = 0;

 private:
  probes::UniqueFd fd_;
};

}  // namespace

TEST_P(FileDeadlineMemory, EachAllocationMayFail) {
  ASSERT_FALSE(read_with_failure(0));  // threads, and whatever is made once, are there then
  long n = 1;
  for (int without = 0; without < 5; n++) {
    without = read_with_failure(n) ? 0 : without + 1;
    ASSERT_FALSE(HasFailure()) << "allocation " << n;
  }
  std::printf("%ld allocations\n", n);
  EXPECT_GT(failures_, 0);
}

INSTANTIATE_ON_EACH_BACKEND(FileDeadlineMemory);

TEST(StreamDeadlineMemory, EachAllocationMayFail) {
  const std::string piece(300'000, 'x');
  std::atomic<long> first_failing{1'000'000};
  std::atomic<int> calls{0};
  std::atomic<int> done{0};
  server_test::TestServer server([&](WFHttpTask* task) {
    const WFHttpStream stream = WFHttpStream::begin(task);
    ASSERT_TRUE(stream);
    ParallelWork* const all = Workflow::create_parallel_work(nullptr);
    for (size_t i = 0; i < kBranches; i++) {
      all->add_series(Workflow::create_series_work(
          stream.create_write_task(
              piece,
              [&](WFStreamTask* ended) {
                calls++;
                done += ended->get_state() == WFT_STATE_SUCCESS;
                EXPECT_EQ(ended->get_error(), ended->get_state() == WFT_STATE_SUCCESS ? 0 : ENOMEM);
              }),
          nullptr));
    }
    series_of(task)->push_back(with_deadline(all, kLong));
    fault::arm(first_failing);
  });
  const auto talk = [&](long n) {
    calls = done = 0;
    first_failing = n;
    server_test::RawClient client(server.port(), 16 * 1024);
    EXPECT_TRUE(client.send(server_test::kGet));
    const auto reply = client.reply();
    client.close();
    EXPECT_TRUE(server.has_connections(0));
    const bool failed = fault::disarm() > 0;
    EXPECT_EQ(calls, static_cast<int>(kBranches));
    if (reply) {
      EXPECT_EQ(reply->body.size(), kBranches * piece.size());
      EXPECT_EQ(done, static_cast<int>(kBranches));
    } else {
      EXPECT_TRUE(failed);
    }
    return failed;
  };
  ASSERT_FALSE(talk(1'000'000));
  long n = 1;
  for (int without = 0; without < 5; n++) {
    without = talk(n) ? 0 : without + 1;
    ASSERT_FALSE(testing::Test::HasFailure()) << "allocation " << n;
  }
  std::printf("%ld allocations\n", n);
  EXPECT_GT(n, 6);
}

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "TaskProbes.h"
#include "kernel/Runtime.h"
#include "util/Time.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"

// Time limits are on the manual clock; functions that run for long wait in a WaitGroup, which that
// clock does not take for work to be waited for.

using probes::on_compute_thread;
using test_support::Tally;
using workflow::kNsPerSec;
using WaitGroup = WFFacilities::WaitGroup;

namespace {

struct Numbers {
  int a = 1;
  int b = 2;
};

// Neither copied nor moved.
struct Sum {
  Sum() = default;
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;
  int value = -1;
};

using AddTask = WFThreadTask<Numbers, Sum>;
using AddFactory = WFThreadTaskFactory<Numbers, Sum>;

void add(const Numbers* in, Sum* out) {
  out->value = in->a + in->b;
}

class ThreadTask : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(WFManualClock::install(), 0); }
};

}  // namespace

TEST_F(ThreadTask, ComputesItsOutputFromItsInput) {
  Tally ended;
  AddTask* task = AddFactory::create_thread_task("queue", add, [&ended](AddTask* done) {
    EXPECT_EQ(done->get_state(), WFT_STATE_SUCCESS);
    EXPECT_EQ(done->get_error(), 0);
    EXPECT_EQ(done->get_output()->value, 42);
    const AddTask* constant = done;
    EXPECT_EQ(constant->get_output(), done->get_output());
    EXPECT_EQ(constant->get_input(), done->get_input());
    EXPECT_TRUE(on_compute_thread());
    ended.add();
  });
  task->get_input()->a = 40;
  task->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(ThreadTask, InputAndOutputAreValueInitialised) {
  using Task = WFThreadTask<int, void*>;
  Task* task = WFThreadTaskFactory<int, void*>::create_thread_task("queue", nullptr, nullptr);
  EXPECT_EQ(*task->get_input(), 0);
  EXPECT_EQ(*task->get_output(), nullptr);
  EXPECT_EQ(task->get_state(), WFT_STATE_UNDEFINED);
  EXPECT_EQ(task->user_data, nullptr);
  task->dismiss();
}

TEST_F(ThreadTask, MovesWhatCannotBeCopied) {
  using Task = WFThreadTask<std::unique_ptr<std::string>, std::unique_ptr<std::string>>;
  using Factory = WFThreadTaskFactory<std::unique_ptr<std::string>, std::unique_ptr<std::string>>;
  Tally ended;
  std::unique_ptr<std::string> result;
  Task* task = Factory::create_thread_task(
      "queue", [](auto* in, auto* out) { *out = std::move(*in); },
      [&](Task* done) {
        EXPECT_EQ(*done->get_input(), nullptr);
        result = std::move(*done->get_output());
        ended.add();
      });
  *task->get_input() = std::make_unique<std::string>("moved");
  task->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(*result, "moved");
}

TEST_F(ThreadTask, TheCallbackMayBeReplacedOrMissing) {
  Tally ended;
  AddTask* task = AddFactory::create_thread_task(
      "queue", add, [](AddTask*) { ADD_FAILURE() << "it was replaced"; });
  task->set_callback([&ended](AddTask*) { ended.add(); });
  SeriesWork* series = Workflow::create_series_work(task, nullptr);
  series->push_back(AddFactory::create_thread_task("queue", add, nullptr));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(ended.count(), 1u);
}

TEST_F(ThreadTask, RunsOnAnExecutorOfTheUsers) {
  ExecQueue queue;
  Executor executor;
  ASSERT_EQ(queue.init(), 0);
  ASSERT_EQ(executor.init(1), 0);
  Tally ended;
  const auto callback = [&ended](AddTask* done) {
    EXPECT_EQ(done->get_output()->value, 3);
    EXPECT_FALSE(on_compute_thread());
    ended.add();
  };
  AddFactory::create_thread_task(&queue, &executor, add, callback)->start();
  AddFactory::create_thread_task(1, 0, &queue, &executor, add, callback)->start();
  EXPECT_TRUE(ended.wait_for(2));
}

// Input and output live as long as the routine, which still writes.
TEST_F(ThreadTask, WritesItsOutputAlsoAfterTheTimeout) {
  using Task = WFThreadTask<std::string, std::string>;
  WaitGroup begun(1);
  WaitGroup go_on(1);
  WaitGroup returned(1);
  Tally ended;
  const std::string text(1000, 'x');
  std::string seen;
  Task* task = WFThreadTaskFactory<std::string, std::string>::create_thread_task(
      2, 0, "queue",
      [&](const std::string* in, std::string* out) {
        begun.done();
        go_on.wait();
        *out = *in + *in;
        seen = *out;
        returned.done();
      },
      [&ended](Task* done) {
        EXPECT_EQ(done->get_state(), WFT_STATE_SYS_ERROR);
        EXPECT_EQ(done->get_error(), ETIMEDOUT);
        EXPECT_EQ(*done->get_output(), "");
        ended.add();
      });
  *task->get_input() = text;
  task->start();
  begun.wait();
  WFManualClock::advance(2 * kNsPerSec - 1);
  EXPECT_EQ(ended.count(), 0u);
  WFManualClock::advance(1);
  EXPECT_EQ(ended.count(), 1u);
  go_on.done();
  returned.wait();
  EXPECT_EQ(seen, text + text);
}

TEST_F(ThreadTask, DismissedItFreesItsRoutineAndInput) {
  const auto token = std::make_shared<int>(1);
  using Task = WFThreadTask<std::shared_ptr<int>, int>;
  Task* task = WFThreadTaskFactory<std::shared_ptr<int>, int>::create_thread_task(
      1, 0, "queue", [token](auto*, auto*) { ADD_FAILURE() << "it has begun"; },
      [token](Task*) { ADD_FAILURE() << "it has ended"; });
  *task->get_input() = token;
  EXPECT_GT(token.use_count(), 3);
  task->dismiss();
  EXPECT_EQ(token.use_count(), 1);
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>

#include "TaskProbes.h"
#include "workflow/WFOperator.h"
#include "workflow/WFTaskFactory.h"

// Every mix of operands. Here `{bc}` in an expectation means b and c, in any order.

using probes::Log;
using probes::LogTask;
using test_support::Tally;

namespace {

class Operator : public testing::Test {
 protected:
  ~Operator() override { EXPECT_EQ(LogTask::alive(), 0); }

  LogTask* task(const char* letter) { return new LogTask(&log_, letter); }
  LogTask& ref(const char* letter) { return *task(letter); }
  SeriesWork& series(const char* letter) {
    return *Workflow::create_series_work(task(letter), nullptr);
  }
  ParallelWork& parallel(const char* letter) {
    SeriesWork* branch = &series(letter);
    return *Workflow::create_parallel_work(&branch, 1, nullptr);
  }

  void expect(SeriesWork& made, const std::string& order) {
    EXPECT_TRUE(probes::run(&made));
    compare(order);
  }
  void expect(ParallelWork& made, const std::string& order) {
    Tally ended;
    made.set_callback(probes::counting(ended));
    made.start();
    EXPECT_TRUE(ended.wait_for(1));
    compare(order);
  }
  // `before` holds pairs of letters: "ab" says a came before b.
  void expect_before(std::initializer_list<const char*> before) {
    for (const char* pair : before) {
      EXPECT_LT(last_.find(pair[0]), last_.find(pair[1])) << pair << " in " << last_;
    }
  }

 private:
  void compare(const std::string& order) {
    std::string got = log_.text();
    std::string plain;
    size_t group = std::string::npos;
    for (char c : order) {
      if (c == '{') {
        group = plain.size();
      } else if (c == '}') {
        const auto offset = static_cast<std::ptrdiff_t>(group);
        std::sort(plain.begin() + offset, plain.end());
        if (got.size() >= plain.size()) {
          std::sort(got.begin() + offset, got.begin() + static_cast<std::ptrdiff_t>(plain.size()));
        }
      } else {
        plain += c;
      }
    }
    EXPECT_EQ(got, plain) << "of " << order << ", really " << log_.text();
    last_ = log_.text();
    log_.clear();
  }

  Log log_;
  std::string last_;
};

}  // namespace

TEST_F(Operator, TaskThenTask) {
  expect(ref("a") > ref("b"), "ab");
  expect(ref("a") > task("b"), "ab");
  expect(task("a") > ref("b"), "ab");
}

TEST_F(Operator, SeriesThenTask) {
  expect(series("a") > ref("b"), "ab");
  expect(series("a") > task("b"), "ab");
}

TEST_F(Operator, TaskThenSeriesRunsTheTaskFirst) {
  expect(ref("a") > series("b"), "ab");
  expect(task("a") > series("b"), "ab");
  expect(ref("a") > (ref("b") > ref("c")), "abc");
  expect(task("a") > (task("b") > (ref("c") > ref("d"))), "abcd");
}

TEST_F(Operator, SeriesThenSeries) {
  expect(series("a") > series("b"), "ab");
  expect((ref("a") > ref("b")) > (ref("c") > ref("d")), "abcd");
}

TEST_F(Operator, LongSeries) {
  expect(ref("a") > ref("b") > task("c") > ref("d"), "abcd");
}

TEST_F(Operator, SeriesIsExtendedNotWrapped) {
  SeriesWork& made = series("b");
  EXPECT_EQ(&(made > ref("c")), &made);
  EXPECT_EQ(&(ref("a") > made), &made);
  EXPECT_EQ(&(made > series("d")), &made);
  expect(made, "abcd");
}

TEST_F(Operator, ParallelInASeries) {
  expect(parallel("a") > ref("b"), "ab");
  expect(parallel("a") > task("b"), "ab");
  expect(parallel("a") > series("b"), "ab");
  expect(parallel("a") > parallel("b"), "ab");
  expect(ref("a") > parallel("b"), "ab");
  expect(task("a") > parallel("b"), "ab");
  expect(series("a") > parallel("b"), "ab");
}

TEST_F(Operator, PointerToAParallelIsATask) {
  expect(&parallel("a") > ref("b"), "ab");
  expect(ref("a") > &parallel("b"), "ab");
  expect(series("a") * &parallel("b"), "{ab}");
}

TEST_F(Operator, TaskBesideTask) {
  expect(ref("a") * ref("b"), "{ab}");
  expect(ref("a") * task("b"), "{ab}");
  expect(task("a") * ref("b"), "{ab}");
}

TEST_F(Operator, SeriesBesideSeries) {
  expect(series("a") * series("b"), "{ab}");
  expect((ref("a") > ref("b")) * (ref("c") > ref("d")), "{abcd}");
  expect_before({"ab", "cd"});
}

TEST_F(Operator, TaskBesideSeries) {
  expect(ref("a") * series("b"), "{ab}");
  expect(task("a") * series("b"), "{ab}");
  expect(series("a") * ref("b"), "{ab}");
  expect(series("a") * task("b"), "{ab}");
}

TEST_F(Operator, ParallelBesideAnything) {
  expect(parallel("a") * series("b"), "{ab}");
  expect(parallel("a") * ref("b"), "{ab}");
  expect(parallel("a") * task("b"), "{ab}");
  expect(series("a") * parallel("b"), "{ab}");
  expect(ref("a") * parallel("b"), "{ab}");
  expect(task("a") * parallel("b"), "{ab}");
  expect(parallel("a") * parallel("b"), "{ab}");
}

TEST_F(Operator, ParallelIsExtendedNotWrapped) {
  ParallelWork& made = parallel("a");
  EXPECT_EQ(&(made * ref("b")), &made);
  EXPECT_EQ(&(task("c") * made), &made);
  EXPECT_EQ(&(series("d") * made), &made);
  EXPECT_EQ(made.size(), 4u);
  expect(made, "{abcd}");
}

TEST_F(Operator, TimesBindsTighterThanGreater) {
  expect(ref("a") > ref("b") * ref("c") > ref("d"), "a{bc}d");
  expect(ref("a") * ref("b") > ref("c") * ref("d"), "{ab}{cd}");
}

TEST_F(Operator, DeepMix) {
  expect(ref("a") > (ref("b") > ref("c")) * (ref("d") * ref("e") > ref("f")) > ref("g"),
         "a{bcdef}g");
  expect_before({"bc", "df", "ef"});
}

TEST_F(Operator, TasksOfTheFactory) {
  Tally timers;
  const auto callback = [&timers](WFTimerTask*) { timers.add(); };
  SeriesWork& made = *WFTaskFactory::create_timer_task(0u, callback) >
                     WFTaskFactory::create_timer_task(0u, callback) >
                     *WFTaskFactory::create_empty_task() * *WFTaskFactory::create_empty_task() >
                     WFTaskFactory::create_counter_task(0, nullptr) > ref("a");
  expect(made, "a");
  EXPECT_EQ(timers.count(), 2u);
}

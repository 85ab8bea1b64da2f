#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/Eventually.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFAlgoTaskFactory.h"

using test_support::Tally;
using test_support::TestRandom;

namespace {

// A type that can be moved and compared, and no more.
struct MoveOnly {
  explicit MoveOnly(int v) : value(std::make_unique<int>(v)) {}
  bool operator<(const MoveOnly& other) const { return *value < *other.value; }
  bool operator==(const MoveOnly& other) const { return *value == *other.value; }
  std::unique_ptr<int> value;
};

std::vector<MoveOnly> movables(const std::vector<int>& values) {
  std::vector<MoveOnly> result;
  for (const int value : values) {
    result.emplace_back(value);
  }
  return result;
}

std::vector<int> values_of(const MoveOnly* first, const MoveOnly* last) {
  std::vector<int> result;
  for (; first != last; first++) {
    result.push_back(*first->value);
  }
  return result;
}

template <class T>
std::vector<int> random_values(T& random, size_t n, uint64_t below) {
  std::vector<int> result(n);
  for (int& value : result) {
    value = static_cast<int>(random.below(below));
  }
  return result;
}

template <class T>
T* begin_of(std::vector<T>& values) {
  return values.data();
}
template <class T>
T* end_of(std::vector<T>& values) {
  return values.data() + values.size();
}

// Starts a task made by `create`, which is given the callback; the state it ended with. `first` and
// `last` receive the output.
template <class T>
struct Ended {
  int state = WFT_STATE_UNDEFINED;
  int error = 0;
  T* first = nullptr;
  T* last = nullptr;
  bool on_compute_thread = false;
  bool on_framework_thread = false;
};

template <class T, class CREATE>
Ended<T> run_algo(CREATE&& create) {
  struct Run {
    Ended<T> ended;
    Tally tally;
  };
  // A task that takes too long ends after this function has returned.
  const auto run = std::make_shared<Run>();
  create([run](auto* task) {
    run->ended = {
        task->get_state(),
        task->get_error(),
        task->get_output()->first,
        task->get_output()->last,
        workflow::ThreadContext::current().pool == &workflow::Runtime::current().compute(),
        workflow::ThreadContext::current().on_framework_thread()};
    run->tally.add();
  })->start();
  const bool in_time = run->tally.wait_for(1);
  EXPECT_TRUE(in_time);
  return in_time ? run->ended : Ended<T>();
}

// Values around every size at which a parallel sort changes what it does.
std::vector<size_t> interesting_sizes() {
  constexpr size_t kGrain = workflow::ParallelSortTask<WFSortTask<int>, std::less<int>>::kGrain;
  std::vector<size_t> sizes = {0, 1, 2, 3, 1000};
  for (const size_t pieces : std::vector<size_t>{1, 2, 3, 4, 5, 7, 8, 9}) {
    sizes.insert(sizes.end(), {pieces * kGrain - 1, pieces * kGrain, pieces * kGrain + 1});
  }
  return sizes;
}

// While it lives, tasks that this thread makes run in a runtime with so many computing threads. It
// waits for them in the end, also if a test has failed: what they use is declared before it.
class ComputeThreads {
 public:
  explicit ComputeThreads(int n)
      : runtime_({.poller_threads = 1, .handler_threads = 2, .compute_threads = n}) {
    EXPECT_TRUE(runtime_.start());
    workflow::ThreadContext::current().runtime = &runtime_;
  }
  ~ComputeThreads() {
    runtime_.stop();
    workflow::ThreadContext::current().runtime = nullptr;
  }
  ComputeThreads(const ComputeThreads&) = delete;
  ComputeThreads& operator=(const ComputeThreads&) = delete;

 private:
  workflow::Runtime runtime_;
};

}  // namespace

TEST(SortTask, SortsAsStdDoes) {
  TestRandom random(test_support::test_seed());
  for (const size_t n : std::vector<size_t>{0, 1, 2, 10, 1000, 100'000}) {
    std::vector<int> values = random_values(random, n, n + 1);
    std::vector<int> expected = values;
    std::sort(expected.begin(), expected.end());
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_sort_task("sort", begin_of(values), end_of(values),
                                                 callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ended.error, 0);
    EXPECT_EQ(ended.first, begin_of(values));
    EXPECT_EQ(ended.last, end_of(values));
    EXPECT_TRUE(ended.on_compute_thread);
    EXPECT_EQ(values, expected);
  }
}

TEST(SortTask, TakesAComparatorAndMoveOnlyElements) {
  std::vector<MoveOnly> values = movables({3, 1, 4, 1, 5, 9, 2, 6});
  const auto ended = run_algo<MoveOnly>([&](auto callback) {
    return WFAlgoTaskFactory::create_sort_task(
        "sort", begin_of(values), end_of(values),
        [](const MoveOnly& a, const MoveOnly& b) { return b < a; }, callback);
  });
  EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(values_of(ended.first, ended.last), (std::vector<int>{9, 6, 5, 4, 3, 2, 1, 1}));
}

TEST(SortTask, TakesAFunctionAndItsInputMayBeReplaced) {
  static Tally& ended = *new Tally;
  static int array[] = {4, 3, 2, 1};
  WFSortTask<int>* task = WFAlgoTaskFactory::create_sort_task<int>(
      "sort", nullptr, nullptr, +[](WFSortTask<int>* done) {
        EXPECT_EQ(done->get_input()->first, array);
        ended.add();
      });
  *task->get_input() = {array, array + 3};
  task->start();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(std::vector<int>(array, array + 4), (std::vector<int>{2, 3, 4, 1}));
}

TEST(SortTask, WithoutACallbackAndDismissed) {
  int array[] = {2, 1};
  WFAlgoTaskFactory::create_sort_task("sort", array, array + 2, nullptr)->dismiss();
  WFAlgoTaskFactory::create_psort_task("sort", array, array + 2, nullptr)->dismiss();
  EXPECT_EQ(array[0], 2);
  Tally ended;
  Workflow::start_series_work(WFAlgoTaskFactory::create_psort_task("q", array, array + 2, nullptr),
                              [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(array[0], 1);
}

// With one to five computing threads, at every size around which the number of pieces changes.
class ParallelSort : public testing::TestWithParam<int> {};

TEST_P(ParallelSort, SortsAsStdDoes) {
  const ComputeThreads threads(GetParam());
  TestRandom random(test_support::test_seed());
  for (const size_t n : interesting_sizes()) {
    if (test_support::kSanitized && !random.one_in(4)) continue;
    std::vector<int> values = random_values(random, n, random.one_in(2) ? 100 : n + 1);
    std::vector<int> expected = values;
    std::sort(expected.begin(), expected.end());
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_psort_task("sort", begin_of(values), end_of(values),
                                                  callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ended.first, begin_of(values));
    EXPECT_EQ(ended.last, end_of(values));
    EXPECT_TRUE(ended.on_framework_thread);
    EXPECT_EQ(values, expected) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelSort, testing::Values(1, 2, 3, 4, 5));

TEST(ParallelSort, AMillionNumbers) {
  const ComputeThreads threads(4);
  const size_t n = test_support::kSanitized ? 100'000 : 1'000'000;
  for (uint64_t stream = 0; stream < 2; stream++) {
    TestRandom random(test_support::test_seed(), stream);
    std::vector<int> values = random_values(random, n, 1u << 30);
    std::vector<int> expected = values;
    std::sort(expected.begin(), expected.end(), std::greater<int>());
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_psort_task("sort", begin_of(values), end_of(values),
                                                  std::greater<int>(), callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_TRUE(values == expected);
  }
}

TEST(ParallelSort, MovesMoveOnlyElements) {
  const ComputeThreads threads(3);
  TestRandom random(test_support::test_seed());
  std::vector<int> values = random_values(random, 50'000, 1000);
  std::vector<MoveOnly> elements = movables(values);
  const auto ended = run_algo<MoveOnly>([&](auto callback) {
    return WFAlgoTaskFactory::create_psort_task("sort", begin_of(elements), end_of(elements),
                                                callback);
  });
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values_of(ended.first, ended.last), values);
}

// Each of two threads waits in its first comparison until the other has come to its own.
TEST(ParallelSort, SortsPiecesSideBySide) {
  Tally compared;
  static thread_local bool first_comparison;
  std::vector<int> values(100'000);
  std::iota(values.begin(), values.end(), 0);
  std::reverse(values.begin(), values.end());
  Tally begun;
  const ComputeThreads threads(2);
  for (int i = 0; i < 2; i++) {
    WFTaskFactory::create_go_task("mark", [&] {
      first_comparison = true;
      begun.add();
      begun.wait_for(2);
    })->start();
  }
  ASSERT_TRUE(begun.wait_for(2));
  const auto ended = run_algo<int>([&](auto callback) {
    return WFAlgoTaskFactory::create_psort_task(
        "sort", begin_of(values), end_of(values),
        [&compared](int a, int b) {
          if (first_comparison) {
            first_comparison = false;
            compared.add();
            EXPECT_TRUE(compared.wait_for(2));
          }
          return a < b;
        },
        callback);
  });
  EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
}

TEST(ParallelSort, ManyAtOnceInSeries) {
  constexpr size_t kSeries = 20;
  std::vector<std::vector<int>> ranges;
  TestRandom random(test_support::test_seed());
  for (size_t i = 0; i < kSeries; i++) {
    ranges.push_back(random_values(random, 40'000, 1'000'000));
  }
  Tally ended;
  const ComputeThreads threads(2);
  for (std::vector<int>& values : ranges) {
    SeriesWork* series = Workflow::create_series_work(
        WFAlgoTaskFactory::create_psort_task("sort", begin_of(values), end_of(values), nullptr),
        [&ended](const SeriesWork*) { ended.add(); });
    series->push_back(
        WFAlgoTaskFactory::create_reverse_task("sort", begin_of(values), end_of(values), nullptr));
    series->start();
  }
  ASSERT_TRUE(ended.wait_for(kSeries));
  for (const std::vector<int>& values : ranges) {
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end(), std::greater<int>()));
  }
}

// At every moment of a sort; what succeeded is sorted, what was aborted has lost nothing.
TEST(ParallelSort, StoppedInTheMiddle) {
  const uint64_t rounds = test_support::kSanitized ? 10 : 50;
  TestRandom random(test_support::test_seed());
  size_t aborted = 0;
  for (uint64_t round = 0; round < rounds; round++) {
    workflow::Runtime runtime({.poller_threads = 1, .handler_threads = 1, .compute_threads = 4});
    ASSERT_TRUE(runtime.start());
    workflow::ThreadContext::current().runtime = &runtime;
    std::vector<int> values = random_values(random, 40'000, 1'000'000);
    std::vector<int> expected = values;
    std::sort(expected.begin(), expected.end());
    const uint64_t stop_at = random.below(600'000);
    std::atomic<uint64_t> comparisons{0};
    Tally reached;
    int state = WFT_STATE_UNDEFINED;
    WFAlgoTaskFactory::create_psort_task(
        "sort", begin_of(values), end_of(values),
        [&](int a, int b) {
          if (comparisons.fetch_add(1, std::memory_order_relaxed) == stop_at) {
            reached.add();
            EXPECT_TRUE(test_support::eventually([&] { return runtime.stopping(); }));
          }
          return a < b;
        },
        [&](WFSortTask<int>* task) {
          state = task->get_state();
          EXPECT_EQ(task->get_output()->first == begin_of(values), state == WFT_STATE_SUCCESS);
          reached.add();
        })
        ->start();
    ASSERT_TRUE(reached.wait_for(1));
    runtime.stop();
    workflow::ThreadContext::current().runtime = nullptr;
    aborted += state == WFT_STATE_ABORTED;
    if (state == WFT_STATE_ABORTED) {
      std::sort(values.begin(), values.end());
    } else {
      EXPECT_EQ(state, WFT_STATE_SUCCESS);
    }
    EXPECT_TRUE(values == expected);
  }
  EXPECT_GT(aborted, 0u);
}

TEST(MergeTask, MergesAsStdDoes) {
  TestRandom random(test_support::test_seed());
  for (const size_t n : std::vector<size_t>{0, 1, 7, 1000}) {
    for (const size_t m : std::vector<size_t>{0, 1, 8, 5000}) {
      std::vector<int> a = random_values(random, n, 500);
      std::vector<int> b = random_values(random, m, 500);
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      std::vector<int> expected(n + m);
      std::merge(a.begin(), a.end(), b.begin(), b.end(), expected.begin());
      std::vector<int> merged(n + m);
      const auto ended = run_algo<int>([&](auto callback) {
        return WFAlgoTaskFactory::create_merge_task("q", begin_of(a), end_of(a), begin_of(b),
                                                    end_of(b), begin_of(merged), callback);
      });
      EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
      EXPECT_EQ(ended.first, begin_of(merged));
      EXPECT_EQ(ended.last, end_of(merged));
      EXPECT_EQ(merged, expected);
    }
  }
}

TEST(MergeTask, TakesAComparatorAndPrefersTheFirstRange) {
  std::vector<int> a = {31, 21, 11};
  std::vector<int> b = {32, 22, 12};
  std::vector<int> merged(6);
  run_algo<int>([&](auto callback) {
    return WFAlgoTaskFactory::create_merge_task(
        "q", begin_of(a), end_of(a), begin_of(b), end_of(b), begin_of(merged),
        [](int x, int y) { return x / 10 > y / 10; }, callback);
  });
  EXPECT_EQ(merged, (std::vector<int>{31, 32, 21, 22, 11, 12}));
}

TEST(ShuffleTask, ShufflesAsStdDoesWithTheSameGenerator) {
  for (const size_t n : std::vector<size_t>{0, 1, 2, 1000}) {
    std::vector<int> values(n);
    std::iota(values.begin(), values.end(), 0);
    std::vector<int> expected = values;
    const std::mt19937 generator(7);
    std::shuffle(expected.begin(), expected.end(), std::mt19937(generator));
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_shuffle_task("q", begin_of(values), end_of(values),
                                                    generator, callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ended.first, begin_of(values));
    EXPECT_EQ(ended.last, end_of(values));
    EXPECT_EQ(values, expected);
  }
}

TEST(ShuffleTask, WithoutAGeneratorOrdersDiffer) {
  std::vector<int> orders[2];
  for (std::vector<int>& values : orders) {
    values.resize(1000);
    std::iota(values.begin(), values.end(), 0);
    run_algo<int>([&values](auto callback) {
      return WFAlgoTaskFactory::create_shuffle_task("q", begin_of(values), end_of(values),
                                                    callback);
    });
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_TRUE(std::is_permutation(orders[0].begin(), orders[0].end(), orders[1].begin()));
}

TEST(RemoveTask, RemovesAsStdDoes) {
  TestRandom random(test_support::test_seed());
  for (const size_t n : std::vector<size_t>{0, 1, 2, 1000}) {
    std::vector<int> values = random_values(random, n, 3);
    std::vector<int> expected = values;
    expected.erase(std::remove(expected.begin(), expected.end(), 1), expected.end());
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_remove_task("q", begin_of(values), end_of(values), 1,
                                                   callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ended.first, begin_of(values));
    EXPECT_EQ(std::vector<int>(ended.first, ended.last), expected);
  }
}

TEST(RemoveTask, IfTakesAPredicateAndMoveOnlyElements) {
  std::vector<MoveOnly> values = movables({1, 2, 3, 4, 5, 6});
  const auto ended = run_algo<MoveOnly>([&](auto callback) {
    return WFAlgoTaskFactory::create_remove_if_task(
        "q", begin_of(values), end_of(values),
        [](const MoveOnly& each) { return *each.value % 2 == 0; }, callback);
  });
  EXPECT_EQ(values_of(ended.first, ended.last), (std::vector<int>{1, 3, 5}));
}

TEST(UniqueTask, KeepsTheFirstOfEqualNeighbours) {
  for (const std::vector<int>& given : {std::vector<int>{}, {1}, {1, 1}, {1, 1, 2, 1, 3, 3, 3}}) {
    std::vector<int> values = given;
    std::vector<int> expected = given;
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_unique_task("q", begin_of(values), end_of(values), callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(std::vector<int>(ended.first, ended.last), expected);
  }
}

TEST(UniqueTask, TakesAPredicateAndMoveOnlyElements) {
  std::vector<MoveOnly> values = movables({1, -1, 2, -2, -2, 3});
  const auto ended = run_algo<MoveOnly>([&](auto callback) {
    return WFAlgoTaskFactory::create_unique_task(
        "q", begin_of(values), end_of(values),
        [](const MoveOnly& a, const MoveOnly& b) {
          return std::abs(*a.value) == std::abs(*b.value);
        },
        callback);
  });
  EXPECT_EQ(values_of(ended.first, ended.last), (std::vector<int>{1, 2, 3}));
}

TEST(ReverseTask, TurnsTheRange) {
  for (const std::vector<int>& given : {std::vector<int>{}, {1}, {1, 2}, {1, 2, 3}}) {
    std::vector<int> values = given;
    const auto ended = run_algo<int>([&](auto callback) {
      return WFAlgoTaskFactory::create_reverse_task("q", begin_of(values), end_of(values),
                                                    callback);
    });
    EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ended.first, begin_of(values));
    EXPECT_EQ(ended.last, end_of(values));
    EXPECT_EQ(values, std::vector<int>(given.rbegin(), given.rend()));
  }
}

TEST(RotateTask, RotatesAsStdDoes) {
  for (const size_t n : std::vector<size_t>{0, 1, 2, 9}) {
    for (size_t middle = 0; middle <= n; middle++) {
      std::vector<int> values(n);
      std::iota(values.begin(), values.end(), 0);
      std::vector<int> expected = values;
      const auto turned = std::rotate(
          expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(middle), expected.end());
      const auto ended = run_algo<int>([&](auto callback) {
        return WFAlgoTaskFactory::create_rotate_task(
            "q", begin_of(values), begin_of(values) + middle, end_of(values), callback);
      });
      EXPECT_EQ(ended.state, WFT_STATE_SUCCESS);
      EXPECT_EQ(ended.first - begin_of(values), turned - expected.begin());
      EXPECT_EQ(ended.last, end_of(values));
      EXPECT_EQ(values, expected);
    }
  }
}

TEST(RotateTask, MovesMoveOnlyElements) {
  std::vector<MoveOnly> values = movables({1, 2, 3});
  run_algo<MoveOnly>([&](auto callback) {
    return WFAlgoTaskFactory::create_rotate_task("q", begin_of(values), begin_of(values) + 1,
                                                 end_of(values), callback);
  });
  EXPECT_EQ(values_of(begin_of(values), end_of(values)), (std::vector<int>{2, 3, 1}));
}

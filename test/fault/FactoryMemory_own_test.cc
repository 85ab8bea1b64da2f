// Each allocation of each function that takes over tasks or series fails in its turn. Then the
// function throws, the caller still owns what it has passed, and nothing else is left.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "support/Eventually.h"
#include "support/MemoryFaults.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFTaskFactory.h"

namespace {

using namespace std::chrono_literals;
using F = WFTaskFactory;

// How many tasks and callbacks of the test there are.
std::atomic<int> alive{0};

class CountedTask final : public WFGenericTask {
 public:
  CountedTask() { alive++; }

 protected:
  ~CountedTask() override { alive--; }
};

class Token {
 public:
  Token() { alive++; }
  Token(const Token& /*other*/) { alive++; }
  Token& operator=(const Token&) = delete;
  ~Token() { alive--; }
};

// A callback that needs memory.
auto callback() {
  return [token = Token()](const auto*) {};
}

// Too long to be kept without memory.
const std::string& name() {
  static const std::string text(100, 'n');
  return text;
}

// What a function is given.
struct Given {
  Given(size_t task_count, size_t series_count) {
    for (size_t i = 0; i < task_count; i++) {
      tasks.push_back(new CountedTask);
    }
    for (size_t i = 0; i < series_count; i++) {
      series.push_back(Workflow::create_series_work(new CountedTask, nullptr));
    }
  }
  // As the caller does that still owns all of it.
  void dismiss() {
    ASSERT_EQ(alive, static_cast<int>(tasks.size() + series.size()));
    for (CountedTask* task : tasks) {
      ASSERT_EQ(series_of(task), nullptr);
      task->dismiss();
    }
    for (SeriesWork* each : series) {
      ASSERT_EQ(each->get_in_parallel(), nullptr);
      each->dismiss();
    }
  }

  std::vector<CountedTask*> tasks;
  std::vector<SeriesWork*> series;
};

struct Started {};
using Made = std::variant<SubTask*, SeriesWork*, Started>;

void dismiss(const Made& made) {
  if (SubTask* const* task = std::get_if<SubTask*>(&made)) {
    Workflow::create_series_work(*task, nullptr)->dismiss();
  } else if (SeriesWork* const* series = std::get_if<SeriesWork*>(&made)) {
    (*series)->dismiss();
  }
}

// Adds to something that the caller owns already.
template <class Owner, class Add>
Made add_to(Owner* owner, Add add) {
  try {
    add(*owner);
  } catch (...) {
    owner->dismiss();
    throw;
  }
  return owner;
}

struct Factory {
  const char* name;
  size_t tasks;
  size_t series;
  Made (*make)(const Given& given);
};

void PrintTo(const Factory& factory, std::ostream* out) {
  *out << factory.name;
}

void* message = nullptr;

WFResourcePool& pool() {
  static WFResourcePool one(1);
  return one;
}
WFMessageQueue& queue() {
  static WFMessageQueue none;
  return none;
}

const Factory kFactories[] = {
    {"Conditional", 1, 0,
     [](const Given& given) -> Made { return F::create_conditional(given.tasks[0], &message); }},
    {"NamedConditional", 1, 0,
     [](const Given& given) -> Made { return F::create_conditional(name(), given.tasks[0]); }},
    {"NamedConditionalWithBuffer", 1, 0,
     [](const Given& given) -> Made {
       return F::create_conditional(name(), given.tasks[0], &message);
     }},
    {"Guard", 1, 0,
     [](const Given& given) -> Made { return F::create_guard(name(), given.tasks[0]); }},
    {"GuardWithBuffer", 1, 0,
     [](const Given& given) -> Made { return F::create_guard(name(), given.tasks[0], &message); }},
    {"WaitForAResource", 1, 0,
     [](const Given& given) -> Made { return pool().get(given.tasks[0]); }},
    {"WaitForAMessage", 1, 0,
     [](const Given& given) -> Made { return queue().get(given.tasks[0]); }},
    {"GraphNode", 1, 0,
     [](const Given& given) -> Made {
       return add_to(F::create_graph_task(callback()),
                     [&given](WFGraphTask& graph) { graph.create_graph_node(given.tasks[0]); });
     }},
    {"Series", 1, 0,
     [](const Given& given) -> Made {
       return Workflow::create_series_work(given.tasks[0], callback());
     }},
    {"SeriesWithALast", 2, 0,
     [](const Given& given) -> Made {
       return Workflow::create_series_work(given.tasks[0], given.tasks[1], callback());
     }},
    {"StartedSeries", 1, 0,
     [](const Given& given) -> Made {
       Workflow::start_series_work(given.tasks[0], callback());
       return Started();
     }},
    {"StartedSeriesWithALast", 2, 0,
     [](const Given& given) -> Made {
       Workflow::start_series_work(given.tasks[0], given.tasks[1], callback());
       return Started();
     }},
    {"Parallel", 0, 2,
     [](const Given& given) -> Made {
       return Workflow::create_parallel_work(given.series.data(), 2, callback());
     }},
    {"StartedParallel", 0, 2,
     [](const Given& given) -> Made {
       Workflow::start_parallel_work(given.series.data(), 2, callback());
       return Started();
     }},
    {"SeriesOfAParallel", 0, 1,
     [](const Given& given) -> Made {
       return add_to(Workflow::create_parallel_work(callback()),
                     [&given](ParallelWork& parallel) { parallel.add_series(given.series[0]); });
     }},
    {"Module", 1, 0,
     [](const Given& given) -> Made { return F::create_module_task(given.tasks[0], callback()); }},
    {"ModuleWithALast", 2, 0,
     [](const Given& given) -> Made {
       return F::create_module_task(given.tasks[0], given.tasks[1], callback());
     }},
    {"ScopeOfATask", 1, 0,
     [](const Given& given) -> Made { return F::create_scope_task(given.tasks[0], callback()); }},
    {"ScopeOfASeries", 0, 1,
     [](const Given& given) -> Made { return F::create_scope_task(given.series[0], callback()); }},
    {"DeadlineOfATask", 1, 0,
     [](const Given& given) -> Made {
       return F::create_deadline_task(given.tasks[0], 1h, callback());
     }},
    {"DeadlineOfASeries", 0, 1,
     [](const Given& given) -> Made {
       return F::create_deadline_task(given.series[0], 1h, callback());
     }},
    {"WithDeadlineOfATask", 1, 0,
     [](const Given& given) -> Made { return with_deadline(given.tasks[0], 1h, callback()); }},
    {"WithDeadlineOfASeries", 0, 1,
     [](const Given& given) -> Made {
       return with_deadline(given.series[0], std::chrono::steady_clock::now() + 1h, callback());
     }},
};

class FactoryMemory : public testing::TestWithParam<Factory> {};

INSTANTIATE_TEST_SUITE_P(Of, FactoryMemory, testing::ValuesIn(kFactories),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(FactoryMemory, WhenItThrowsItHasTakenNothing) {
  const Factory& factory = GetParam();
  Workflow::start_series_work(new CountedTask, nullptr);  // so that the library runs
  ASSERT_TRUE(test_support::eventually([] { return alive == 0; }));
  long failed = 1;
  long n = 0;
  while (failed > 0) {
    n++;
    Given given(factory.tasks, factory.series);
    std::optional<Made> made;
    fault::counts_here = true;
    fault::arm(n);
    try {
      made = factory.make(given);
    } catch (const std::bad_alloc&) {
    }
    failed = fault::disarm();
    fault::counts_here = false;
    ASSERT_TRUE(made || failed > 0);
    if (made) {
      dismiss(*made);
    } else {
      given.dismiss();
    }
    ASSERT_FALSE(HasFailure()) << "allocation " << n;
    ASSERT_TRUE(test_support::eventually([] { return alive == 0; })) << "allocation " << n;
  }
  EXPECT_GT(n, 1);
}

}  // namespace

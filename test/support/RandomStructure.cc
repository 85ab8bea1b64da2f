#include "support/RandomStructure.h"

#include <utility>

#include "workflow/WFFacilities.h"

namespace test_support {

// The time of a callback of a task.
class RandomStructure::Call {
 public:
  Call(RandomStructure* structure, Record* record, const SubTask* task) {
    structure->require(record->callbacks.fetch_add(1) == 0, "called back twice", record);
    series_ = static_cast<Record*>(series_of(task)->get_context());
    structure->require(!series_->busy.exchange(true), "two tasks of it run at once", series_);
  }
  ~Call() { series_->busy = false; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Record* series_;
};

// Ends at once, and tells whether it was dispatched.
class RandomStructure::Leaf final : public WFGenericTask {
 public:
  Leaf(RandomStructure* structure, Token token, bool acts)
      : structure_(structure), token_(std::move(token)), acts_(acts) {}

 protected:
  void dispatch() override {
    token_->dispatched++;
    WFGenericTask::dispatch();
  }
  SubTask* done() override {
    {
      const Call call(structure_, token_.get(), this);
      if (acts_) {
        structure_->act(this, token_.get());
      }
    }
    return WFGenericTask::done();
  }

 private:
  RandomStructure* const structure_;
  const Token token_;
  const bool acts_;
};

RandomStructure::RandomStructure(Options options)
    : options_(std::move(options)),
      counter_name_("structure " + std::to_string(options_.seed) + "/" +
                    std::to_string(options_.stream)) {}

void RandomStructure::build() {
  root_ = add("root series", nullptr);
  TestRandom random = random_of(root_);
  const size_t branches = 1 + random.below(4);
  gate_ = WFTaskFactory::create_counter_task(options_.gates, nullptr);
  SubTask* task = random.one_in(2)
                      ? make_parallel(random, options_.depth, add("parallel", root_), branches)
                      : make_graph(random, options_.depth, add("graph", root_), branches);
  root_series_ = Workflow::create_series_work(
      task, [token = token_of(root_)](const SeriesWork*) { token->callbacks++; });
  root_series_->set_context(root_);
}

RandomStructure::Record* RandomStructure::add(const char* kind, Record* parent) {
  std::lock_guard<std::mutex> lock(mutex_);
  return &records_.emplace_back(kind, parent, records_.size());
}

RandomStructure::Token RandomStructure::token_of(Record* record) {
  return Token(record, [](Record* freed) { freed->freed++; });
}

void RandomStructure::start() {
  root_series_->start();
}

void RandomStructure::dismiss() {
  dismissed_ = true;
  root_series_->dismiss();
}

void RandomStructure::cancel(size_t branch) {
  cancelled_ = true;
  branches_[branch % branches_.size()]->cancel();
}

// Making ----------------------------------------------------------------------------------------

SubTask* RandomStructure::make_task(TestRandom& random, int depth, Record* parent) {
  if (depth == 0 || random.one_in(2)) return make_leaf(random, parent, true);
  switch (random.below(6)) {
    case 0:
    case 1:
      return make_parallel(random, depth - 1, add("parallel", parent), random.below(4));
    case 2:
      return make_graph(random, depth - 1, add("graph", parent), random.below(6));
    case 3:
      return make_module(random, depth - 1, add("module", parent));
    case 4:
      return make_repeater(depth - 1, add("repeater", parent));
    default:
      return make_dynamic(depth - 1, add("dynamic", parent));
  }
}

SubTask* RandomStructure::make_leaf(TestRandom& random, Record* parent, bool acts) {
  const uint64_t kind = random.below(8);
  if (kind < 4) return new Leaf(this, token_of(add("leaf", parent)), acts);
  const auto called = [this, acts](const Token& token, SubTask* task) {
    const Call call(this, token.get(), task);
    if (acts) {
      act(task, token.get());
    }
  };
  if (kind < 6) {
    const Token token = token_of(add("timer", parent));
    return WFTaskFactory::create_timer_task(
        0, random.one_in(2) ? 0 : random.between(0, 50'000),
        [token, called](WFTimerTask* task) { called(token, task); });
  }
  if (kind == 6) {
    const Token token = token_of(add("counter", parent));
    return WFTaskFactory::create_counter_task(
        counter_name_, 1, [token, called](WFCounterTask* task) { called(token, task); });
  }
  const Token token = token_of(add("go task", parent));
  WFGoTask* task = WFTaskFactory::create_go_task("structure", [] { WFFacilities::usleep(0); });
  task->set_callback([token, called](WFGoTask* go) { called(token, go); });
  return task;
}

// A series for the record of what it is in.
void RandomStructure::prepare_series(SeriesWork* series, Record* parent) {
  Record* record = add("series", parent);
  parent->series.push_back(record);
  series->set_context(record);
  series->set_callback([this, token = token_of(record)](const SeriesWork* finished) {
    require(token->callbacks.fetch_add(1) == 0, "called back twice", token.get());
    require(finished->is_finished(), "called back unfinished", token.get());
  });
}

void RandomStructure::extend_series(TestRandom& random, SeriesWork* series, int depth) {
  Record* record = static_cast<Record*>(series->get_context());
  for (uint64_t i = 1 + random.below(4); i > 0; i--) {
    series->push_back(make_task(random, depth, record));
  }
  if (random.one_in(4)) {
    series->set_last_task(make_task(random, 0, record));
  }
}

SeriesWork* RandomStructure::make_series(TestRandom& random, int depth, Record* parent) {
  // Its first task comes before its record: one of no consequence.
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  prepare_series(series, parent);
  extend_series(random, series, depth);
  return series;
}

SubTask* RandomStructure::make_parallel(TestRandom& random, int depth, Record* record,
                                        size_t branches) {
  ParallelWork* parallel = Workflow::create_parallel_work(
      [this, token = token_of(record)](const ParallelWork* finished) {
        for (const Record* series : token->series) {
          require(series->callbacks == 1, "its parallel was called back before it", series);
        }
        const Call call(this, token.get(), finished);
      });
  for (size_t i = 0; i < branches; i++) {
    SeriesWork* series = make_series(random, depth, record);
    parallel->add_series(series);
    if (record->parent == root_) {
      branches_.push_back(series);
    }
  }
  if (record->parent == root_) {
    parallel->add_series(Workflow::create_series_work(gate_, nullptr));
  }
  return parallel;
}

SubTask* RandomStructure::make_graph(TestRandom& random, int depth, Record* record, size_t nodes) {
  WFGraphTask* graph =
      WFTaskFactory::create_graph_task([this, token = token_of(record)](WFGraphTask* finished) {
        for (const Record* series : token->series) {
          require(series->callbacks == 1, "its graph was called back before it", series);
        }
        require(finished->get_state() == WFT_STATE_SUCCESS, "did not succeed", token.get());
        const Call call(this, token.get(), finished);
      });
  std::vector<WFGraphNode*> made;
  for (size_t i = 0; i < nodes; i++) {
    SubTask* first = WFTaskFactory::create_empty_task();
    WFGraphNode& node = graph->create_graph_node(first);
    prepare_series(series_of(first), record);
    extend_series(random, series_of(first), depth);
    if (record->parent == root_) {
      branches_.push_back(series_of(first));
    }
    for (WFGraphNode* other : made) {
      if (random.one_in(3)) {
        random.one_in(2) ? other->precede(node) : node.succeed(*other);
      }
    }
    made.push_back(&node);
  }
  if (record->parent == root_) {
    graph->create_graph_node(gate_);
  }
  return graph;
}

SubTask* RandomStructure::make_module(TestRandom& random, int depth, Record* record) {
  WFModuleTask* module = WFTaskFactory::create_module_task(
      WFTaskFactory::create_empty_task(),
      [this, token = token_of(record)](const WFModuleTask* finished) {
        require(token->series[0]->callbacks == 1, "its module was called back before it",
                token->series[0]);
        const Call call(this, token.get(), finished);
      });
  prepare_series(module->sub_series(), record);
  extend_series(random, module->sub_series(), depth);
  return module;
}

SubTask* RandomStructure::make_repeater(int depth, Record* record) {
  const Token token = token_of(record);
  return WFTaskFactory::create_repeater_task(
      [this, record, depth, random = random_of(record),
       left = record->id % 3](WFRepeaterTask*) mutable -> SubTask* {
        return left-- > 0 ? make_task(random, depth, record) : nullptr;
      },
      [this, token](WFRepeaterTask* finished) { const Call call(this, token.get(), finished); });
}

SubTask* RandomStructure::make_dynamic(int depth, Record* record) {
  return WFTaskFactory::create_dynamic_task(
      [this, token = token_of(record), depth](WFDynamicTask* task) -> SubTask* {
        const Call call(this, token.get(), task);
        TestRandom random = random_of(token.get());
        return random.one_in(4) ? nullptr : make_task(random, depth, token->parent);
      });
}

// Callbacks -------------------------------------------------------------------------------------

void RandomStructure::act(SubTask* task, const Record* record) {
  TestRandom random = random_of(record);
  SeriesWork* series = series_of(task);
  Record* in = static_cast<Record*>(series->get_context());
  switch (random.below(10)) {
    case 0:
      series->push_front(make_leaf(random, in, false));
      break;
    case 1:
      series->push_back(make_leaf(random, in, false));
      break;
    case 2:
      release();
      break;
    case 3:
      WFFacilities::usleep(static_cast<unsigned int>(random.below(3)));
      break;
    case 4:
      if (options_.cancels) {
        cancelled_ = true;
        // Its own, or one around it.
        for (uint64_t up = random.below(3); up > 0 && series->get_in_parallel(); up--) {
          series = series_of(series->get_in_parallel());
        }
        series->cancel();
      }
      break;
    default:
      break;
  }
}

void RandomStructure::require(bool holds, const char* what, const Record* record) {
  if (!holds) {
    std::lock_guard<std::mutex> lock(mutex_);
    problem_ += "record " + std::to_string(record->id) + ", " + record->kind + ": " + what +
                " (dispatched " + std::to_string(record->dispatched) + ", callbacks " +
                std::to_string(record->callbacks) + ", freed " + std::to_string(record->freed) +
                ")\n";
  }
}

// The account -----------------------------------------------------------------------------------

bool RandomStructure::all_freed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Record& record : records_) {
    if (record.freed == 0) return false;
  }
  return true;
}

size_t RandomStructure::records() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return records_.size();
}

size_t RandomStructure::called_back() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t n = 0;
  for (const Record& record : records_) {
    n += record.callbacks > 0;
  }
  return n;
}

std::string RandomStructure::account() const {
  RandomStructure* self = const_cast<RandomStructure*>(this);
  for (const Record& record : records_) {
    self->require(record.freed == 1, "not freed once", &record);
    self->require(record.callbacks <= 1, "called back more than once", &record);
    self->require(record.dispatched <= record.callbacks, "dispatched, not called back", &record);
    if (dismissed_) {
      self->require(record.callbacks == 0, "dismissed, and called back", &record);
    } else if (!cancelled_) {
      self->require(record.callbacks == 1, "not called back", &record);
    }
    if (record.callbacks > 0 && record.parent) {
      self->require(record.parent->callbacks == 1, "what it was in was not called back", &record);
    }
  }
  self->require(dismissed_ || root_->callbacks == 1, "not called back", root_);
  return problem_;
}

}  // namespace test_support

#pragma once

#include <cstddef>
#include <string_view>

#include "factory/NameRegistry.h"
#include "workflow/WFTask.h"

namespace workflow {

// A counter that can be counted by its name. It leaves its name when its target is reached.
class NamedCounterTask final : public WFCounterTask, public NamedNode {
 public:
  // Throws std::bad_alloc.
  NamedCounterTask(std::string_view name, unsigned int target,
                   std::function<void(WFCounterTask*)>&& callback);

  void count() override;

  // Counts `n` times by name; returns how many counters reached their target.
  static size_t count(std::string_view name, unsigned int n);

  // Every outstanding named counter of the calling thread's runtime.
  static NameRegistry& registry();

 protected:
  ~NamedCounterTask() override;

 private:
  // pending_ has two parts left to happen: the target, and the dispatch. True when both are.
  bool part_done() { return pending_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  unsigned int remaining_;  // guarded by B
};

}  // namespace workflow

#pragma once

#include <cstddef>
#include <string_view>

#include "factory/NameRegistry.h"
#include "workflow/WFTask.h"

namespace workflow {

// A counter that can be counted by its name. It leaves its name when its target is reached, or when
// it is aborted or cancelled. The thread that reaches the target claims the counter under the
// NameRegistry lock, and publishes it when it is unlinked.
class NamedCounterTask final : public WFCounterTask, public NamedNode {
 public:
  // Throws std::bad_alloc.
  NamedCounterTask(std::string_view name, unsigned int target,
                   std::function<void(WFCounterTask*)>&& callback);

  void count() override;

  // Counts `n` times by name. Returns how many counters reached their target.
  static size_t count(std::string_view name, unsigned int n);

  // Returns the registry of all outstanding named counters of the calling thread's runtime.
  static NameRegistry& registry();

 protected:
  ~NamedCounterTask() override;
  void leave_waiting() override;
  bool is_known_by_address() const override { return false; }

 private:
  unsigned int left_;  // of the target; guarded by the NameRegistry lock
};

}  // namespace workflow

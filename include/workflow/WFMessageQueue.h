#pragma once

#include <cstddef>
#include <deque>

#include "workflow/WFResourcePool.h"

// Messages that tasks wait for: get() takes the oldest, post() adds one, without limit. Derive from
// it to choose another order: override both pop() and push().
class WFMessageQueue : public workflow::ResourceSource {
 public:
  WFMessageQueue();
  ~WFMessageQueue() override;

 protected:
  void *pop() override;
  void push(void *msg) override;

 private:
  std::deque<void *> messages_;
};

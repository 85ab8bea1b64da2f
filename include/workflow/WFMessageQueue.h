#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "workflow/WFResourcePool.h"

// Messages that tasks wait for. get() returns a conditional, whose task runs when it has got the
// oldest message. post() adds a message; there is no limit. To choose another order, derive from
// this class and override both pop() and push().
class WFMessageQueue : public workflow::ResourceSource {
 public:
  // The state of the queue, for derived classes. `mutex` guards it, and is held when pop() and
  // push() are called. (A simulation does not schedule this mutex, so in a simulation only those
  // two functions may use the state.)
  struct Data {
    // These call the functions of the queue, overridden or not.
    void *pop() { return queue->pop(); }
    void push(void *msg) { queue->push(msg); }

    // The messages, oldest first. Unused by a class that overrides both pop() and push().
    std::deque<void *> messages;
    std::mutex &mutex;
    WFMessageQueue *queue;
  };

  WFMessageQueue();
  ~WFMessageQueue() override;

 protected:
  void *pop() override;
  void push(void *msg) override;

  struct Data data;
};

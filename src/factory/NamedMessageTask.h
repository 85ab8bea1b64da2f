#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "factory/Names.h"
#include "workflow/WFWaitingTask.h"

namespace workflow {

// A mailbox or a conditional that can be sent to by its name. It leaves its name with its message,
// or when it is aborted or interrupted; who unlinks it, under B, delivers the message after that,
// and claims it before B is released: what was interrupted may be gone then.
//
// `Base`: WFMailboxTask or WFConditional.
template <class Base>
class NamedMessageTask : public Base, public NamedNode {
 public:
  // Throws std::bad_alloc.
  template <class... Args>
  explicit NamedMessageTask(std::string_view name, Args&&... args)
      : Base(std::forward<Args>(args)...) {
    registry().link(this, name);
  }

  // Sends a message to each task of that name that was created before the call, oldest first and
  // at most `max`: message(i) for the i-th. Returns how many got one.
  template <class Message>
  static size_t deliver_to(std::string_view name, size_t max, Message&& message);

  // Every outstanding task of the kind in the calling thread's runtime.
  static NameRegistry& registry() { return names_of<NamedMessageTask>(); }

 protected:
  ~NamedMessageTask() override {
    // Who ends a started one leaves the name.
    if (!this->is_started()) {
      registry().unlink(this);
    }
  }

  void leave_waiting() override { registry().unlink(this); }
  bool is_told_by_address() const override { return false; }

  // send() and signal() of the task itself.
  void send_directly(void* message) {
    bool claimed = false;
    registry().unlink_if(this, [this, &claimed] {
      claimed = this->claim();
      return true;
    });
    if (claimed && this->claimed_delivery(message) == Base::Delivery::kEnds) {
      this->complete();
    }
  }
};

template <class Base>
template <class Message>
size_t NamedMessageTask<Base>::deliver_to(std::string_view name, size_t max, Message&& message) {
  size_t delivered = 0;
  RunnableList ended;
  registry().take(
      // One that refuses, because it has ended otherwise and is about to leave its name, takes
      // none.
      name, SIZE_MAX, [&delivered, max](NamedNode*) { return delivered < max; },
      [&](NamedNode* node) {
        NamedMessageTask* task = static_cast<NamedMessageTask*>(node);
        const auto delivery = task->deliver(message(delivered));
        delivered += delivery != Base::Delivery::kRefused;
        if (delivery == Base::Delivery::kEnds) {
          ended.push_back(task);
        }
      },
      [] {});
  // Not in between: one of them may wait for another.
  NamedMessageTask::complete_all(ended);
  return delivered;
}

class NamedMailboxTask final : public NamedMessageTask<WFMailboxTask> {
 public:
  using NamedMessageTask::NamedMessageTask;
  void send(void* message) override { send_directly(message); }
};

class NamedConditional final : public NamedMessageTask<WFConditional> {
 public:
  using NamedMessageTask::NamedMessageTask;
  void signal(void* message) override { send_directly(message); }
};

}  // namespace workflow

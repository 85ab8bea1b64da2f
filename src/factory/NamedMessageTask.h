#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "factory/Names.h"
#include "workflow/WFWaitingTask.h"

namespace workflow {

// A mailbox or a conditional that can get a message by its name. It leaves its name when it gets
// its message, or when it is aborted or cancelled. The thread that unlinks it, under the
// NameRegistry lock, delivers the message after that. It claims the task before it releases the
// lock, because a task that was cancelled may be gone then.
//
// `Base` is WFMailboxTask or WFConditional.
template <class Base>
class NamedMessageTask : public Base, public NamedNode {
 public:
  // Throws std::bad_alloc.
  template <class... Args>
  explicit NamedMessageTask(std::string_view name, Args&&... args)
      : Base(std::forward<Args>(args)...) {
    registry().link(this, name);
  }

  // Sends a message to each task of that name that was created before the call, oldest first, and
  // to at most `max` tasks. The i-th task gets message(i). Returns how many tasks got a message.
  template <class Message>
  static size_t deliver_to(std::string_view name, size_t max, Message&& message);

  // Returns the registry of all outstanding tasks of the kind in the calling thread's runtime.
  static NameRegistry& registry() { return names_of<NamedMessageTask>(); }

 protected:
  ~NamedMessageTask() override {
    // A task that was started has left its name when it ended.
    if (!this->is_started()) {
      registry().unlink(this);
    }
  }

  void leave_waiting() override { registry().unlink(this); }
  bool is_known_by_address() const override { return false; }

  // Implements send() and signal() of the task itself.
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
      // A task that has ended otherwise, and is about to leave its name, refuses the message and
      // does not count.
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
  // Only after all have got their messages, because one of them may wait for another.
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
  // If this throws std::bad_alloc, the task still belongs to the caller.
  NamedConditional(std::string_view name, SubTask* task, void** msgbuf)
      : NamedMessageTask(name, nullptr, msgbuf) {
    own(task);
  }
  void signal(void* message) override { send_directly(message); }
};

}  // namespace workflow

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernel/OriginProcess.h"
#include "util/Mutex.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"

namespace workflow {

class ResourceConditional;

// The conditionals that wait for the resources of a source, and the number of free resources.
//
// Thread-safe. Resources are delivered under mutex_, and the source's pop() and push(), which users
// may have overridden, are called under mutex_. A conditional in the line is alive, because it is
// taken out before it is completed. The source and the conditionals share the line, because a
// conditional may be aborted after the source is gone.
class ResourceLine {
 public:
  explicit ResourceLine(ResourceSource* source) : source_(source) {}

  // The source is gone: a conditional that enters after this waits until the library ends.
  void close() {
    if (origin_.is_parent()) {
      source_.store(nullptr, std::memory_order_relaxed);  // nobody here may have the lock
      return;
    }
    UserLock lock(mutex_);
    source_.store(nullptr, std::memory_order_relaxed);
  }

  void set_available(size_t n) {
    UserLock lock(mutex_);
    value_ = static_cast<long>(n);
  }

  // These two are for the user's part of a source; see ResourceSource.
  std::mutex& mutex() { return mutex_.native(); }
  long& value() WF_NO_THREAD_SAFETY_ANALYSIS { return value_; }

  // Gives the conditional a resource, or lets it wait in line.
  void enter(ResourceConditional* conditional);
  // Takes the conditional out of the line if it still waits.
  void leave(ResourceConditional* conditional);
  void post(void* resource);

 private:
  void unlink(ResourceConditional* conditional) WF_REQUIRES(mutex_);

  const OriginProcess origin_;
  UserMutex mutex_;
  // Relaxed. Changed with mutex_ held, but in a child of fork(2), where a thread of the parent may
  // hold it for ever.
  std::atomic<ResourceSource*> source_;
  // The number of free resources. A negative value is the number of conditionals that wait.
  long value_ WF_GUARDED_BY(mutex_) = 0;
  ResourceConditional* first_ WF_GUARDED_BY(mutex_) = nullptr;
  ResourceConditional* last_ WF_GUARDED_BY(mutex_) = nullptr;
};

class ResourceConditional final : public WFConditional {
 public:
  ResourceConditional(std::shared_ptr<ResourceLine> line, SubTask* task, void** slot)
      : WFConditional(task, slot), line_(std::move(line)) {}

  // Has no effect: only a post gives the conditional a resource.
  void signal(void* /*message*/) override {}

 protected:
  ~ResourceConditional() override = default;
  void dispatch() override {
    line_->enter(this);
    WFConditional::dispatch();
  }
  void leave_waiting() override { line_->leave(this); }
  bool is_known_by_address() const override { return false; }
  void message_unused(void* resource) override { line_->post(resource); }

 private:
  friend class ResourceLine;

  const std::shared_ptr<ResourceLine> line_;
  // Guarded by the ResourceLine lock.
  ResourceConditional* next_ = nullptr;
  ResourceConditional* previous_ = nullptr;
  bool waits_ = false;
};

void ResourceLine::enter(ResourceConditional* conditional) {
  UserLock lock(mutex_);
  ResourceSource* const source = value_ > 0 ? source_.load(std::memory_order_relaxed) : nullptr;
  value_--;
  if (source) {
    conditional->deliver(source->pop());
    return;
  }
  conditional->waits_ = true;
  conditional->previous_ = last_;
  (last_ ? last_->next_ : first_) = conditional;
  last_ = conditional;
}

void ResourceLine::unlink(ResourceConditional* conditional) {
  (conditional->previous_ ? conditional->previous_->next_ : first_) = conditional->next_;
  (conditional->next_ ? conditional->next_->previous_ : last_) = conditional->previous_;
  conditional->next_ = conditional->previous_ = nullptr;
  conditional->waits_ = false;
  value_++;
}

void ResourceLine::leave(ResourceConditional* conditional) {
  UserLock lock(mutex_);
  if (conditional->waits_) {
    unlink(conditional);
  }
}

void ResourceLine::post(void* resource) {
  ResourceConditional* ends = nullptr;
  bool taken = false;
  {
    UserLock lock(mutex_);
    while (!taken && first_) {
      ResourceConditional* next = first_;
      unlink(next);
      const auto delivery = next->deliver(resource);
      taken = delivery != ResourceConditional::Delivery::kRefused;
      if (delivery == ResourceConditional::Delivery::kEnds) {
        ends = next;
      }
    }
    ResourceSource* const source = taken ? nullptr : source_.load(std::memory_order_relaxed);
    if (source) {
      source->push(resource);
      value_++;
    }
  }
  if (ends) {
    ends->complete();
  }
}

ResourceSource::ResourceSource() : line_(std::make_shared<ResourceLine>(this)) {}

ResourceSource::~ResourceSource() {
  line_->close();
}

void ResourceSource::set_initial(size_t n) {
  line_->set_available(n);
}

std::mutex& ResourceSource::mutex() {
  return line_->mutex();
}

long& ResourceSource::value() {
  return line_->value();
}

WFConditional* ResourceSource::get(SubTask* task, void** resbuf) {
  return new ResourceConditional(line_, task, resbuf);
}

void ResourceSource::post(void* res) {
  // The one that gets the resource may destroy this source before post() returns.
  const std::shared_ptr<ResourceLine> line = line_;
  line->post(res);
}

}  // namespace workflow

WFResourcePool::WFResourcePool(size_t n)
    : data{nullptr, 0, value(), mutex(), this}, storage_(new void*[n]()), capacity_(n) {
  data.res = storage_.get();
  set_initial(n);
}

WFResourcePool::WFResourcePool(void* const* res, size_t n) : WFResourcePool(n) {
  if (res) std::reverse_copy(res, res + n, data.res);  // the next one taken is in front
}

WFResourcePool::~WFResourcePool() = default;

void* WFResourcePool::pop() {
  return data.res[data.index++];
}

void WFResourcePool::push(void* res) {
  if (data.index == 0) {
    // More resources are pushed than were taken. The new room is in front of those in the pool.
    const size_t room = capacity_ + 1;
    std::unique_ptr<void*[]> larger(new void*[room + capacity_]);
    std::copy_n(data.res, capacity_, larger.get() + room);
    storage_ = std::move(larger);
    data.res = storage_.get();
    data.index = room;
    capacity_ += room;
  }
  data.res[--data.index] = res;
}

WFMessageQueue::WFMessageQueue() : data{{}, mutex(), this} {}
WFMessageQueue::~WFMessageQueue() = default;

void* WFMessageQueue::pop() {
  void* message = data.messages.front();
  data.messages.pop_front();
  return message;
}

void WFMessageQueue::push(void* msg) {
  data.messages.push_back(msg);
}

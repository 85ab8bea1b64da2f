#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "workflow/WFWaitingTask.h"

namespace workflow {

class ResourceLine;

// What waits for things that are posted, first come, first served; the things that nobody waits
// for are kept by the class that derives from it.
//
// Thread-safe. It outlives every conditional that it made, but not those that the end of the
// library aborts.
class ResourceSource {
 public:
  ResourceSource(const ResourceSource &) = delete;
  ResourceSource &operator=(const ResourceSource &) = delete;

  // Runs `task` when it gets a resource: once it is dispatched and those dispatched before it have
  // got theirs. The resource is in `*resbuf`, or in the conditional's `user_data`. If its series is
  // cancelled by then the task is dropped, and the resource is posted again.
  WFConditional *get(SubTask *task, void **resbuf);
  WFConditional *get(SubTask *task) { return get(task, nullptr); }

  // Gives `res` to the first that waits, else keeps it.
  void post(void *res);

 protected:
  ResourceSource();
  virtual ~ResourceSource();

  // Called one at a time, under a lock: they must not call this object. pop() only when there is
  // something, push() not more often than there is room for in the derived class.
  virtual void *pop() = 0;
  virtual void push(void *res) = 0;

  // For constructors: so many resources are in the derived class already.
  void set_initial(size_t n);

  // The lock under which pop() and push() are called, and what it guards: how many resources there
  // are that nobody waits for, or, negative, how many wait for one.
  std::mutex &mutex();
  long &value();

 private:
  friend class ResourceLine;
  const std::shared_ptr<ResourceLine> line_;
};

}  // namespace workflow

// A number of resources that tasks take and give back. The last one given back is the first one
// taken. Derive from it to choose otherwise: override both pop() and push().
class WFResourcePool : public workflow::ResourceSource {
 public:
  // The state of the pool, for derived classes. All of it is guarded by `mutex`, which is held when
  // pop() and push() are called. (A simulation does not schedule it: there only those two may use
  // the state.)
  struct Data {
    // Those of the pool, overridden or not.
    void *pop() { return pool->pop(); }
    void push(void *resource) { pool->push(resource); }

    // The resources that the pool has: from `res[index]`, the next one taken, to the end. Unused by
    // a class that overrides both pop() and push().
    void **res;
    size_t index;
    // How many resources the pool has; negative: how many tasks wait for one. Not to be written.
    const long &value;
    std::mutex &mutex;
    WFResourcePool *pool;
  };

  // Of the `n` resources in `res`, which is copied. The last of them is the first one taken.
  WFResourcePool(void *const *res, size_t n);
  // Of `n` that are all null: permissions to do something.
  explicit WFResourcePool(size_t n);
  ~WFResourcePool() override;

 protected:
  void *pop() override;
  void push(void *res) override;

  struct Data data;

 private:
  std::unique_ptr<void *[]> storage_;  // which data.res is
  size_t capacity_;
};

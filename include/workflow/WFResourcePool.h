#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "workflow/WFWaitingTask.h"

namespace workflow {

class ResourceLine;

// A line of conditionals that wait for resources, first come, first served. Resources that nobody
// waits for are kept by the derived class.
//
// Thread-safe. It must outlive every conditional that it made, except those that the end of the
// library aborts.
class ResourceSource {
 public:
  ResourceSource(const ResourceSource &) = delete;
  ResourceSource &operator=(const ResourceSource &) = delete;

  // Returns a conditional that runs `task`, which must not be null, when it gets a resource: once
  // the conditional is dispatched and those dispatched before it have got theirs. The resource is
  // in `*resbuf`, or in the conditional's `user_data`. If the series of the conditional is
  // cancelled by then, the task is dropped and the resource is posted again. When this throws
  // std::bad_alloc, the task still belongs to the caller.
  WFConditional *get(SubTask *task, void **resbuf);
  WFConditional *get(SubTask *task) { return get(task, nullptr); }

  // Gives `res`, which may be null, to the first conditional that waits, or keeps it if none does.
  // On a thread of the library the task of that conditional may run inside this call, so hold no
  // lock that it takes. Throws std::bad_alloc if there is no memory to keep `res`.
  void post(void *res);

 protected:
  ResourceSource();
  virtual ~ResourceSource();

  // Called one at a time, under a lock, so they must not call this object. pop() is called only if
  // there is a resource. push() is called once for each resource that is kept.
  virtual void *pop() = 0;
  virtual void push(void *res) = 0;

  // For constructors: declares that the derived class holds `n` resources already.
  void set_initial(size_t n);

  // The lock under which pop() and push() are called, and the number that it guards: how many
  // resources there are that nobody waits for or, if it is negative, how many conditionals wait.
  std::mutex &mutex();
  long &value();

 private:
  friend class ResourceLine;
  const std::shared_ptr<ResourceLine> line_;
};

}  // namespace workflow

// A number of resources that tasks take and give back. The resource that was given back last is
// taken first. To choose another order, derive from this class and override both pop() and push().
class WFResourcePool : public workflow::ResourceSource {
 public:
  // The state of the pool, for derived classes. `mutex` guards all of it, and is held when pop()
  // and push() are called. (A simulation does not schedule this mutex, so in a simulation only
  // those two functions may use the state.)
  struct Data {
    // These call the functions of the pool, overridden or not.
    void *pop() { return pool->pop(); }
    void push(void *resource) { pool->push(resource); }

    // The resources that the pool has: from `res[index]`, the next one to be taken, to the end.
    // Unused by a class that overrides both pop() and push().
    void **res;
    size_t index;
    // The number of resources that the pool has or, if it is negative, of tasks that wait for one.
    // Derived classes must not write it.
    const long &value;
    std::mutex &mutex;
    WFResourcePool *pool;
  };

  // Creates a pool of the `n` resources in `res`, which is copied. The last of them is taken first.
  // If `res` is null, the pool has `n` null pointers as its resources. Throws std::bad_alloc.
  WFResourcePool(void *const *res, size_t n);
  // Creates a pool of `n` resources that are all null, to be used as permissions to do something.
  explicit WFResourcePool(size_t n);
  ~WFResourcePool() override;

 protected:
  void *pop() override;
  void push(void *res) override;

  struct Data data;

 private:
  std::unique_ptr<void *[]> storage_;  // data.res points into it
  size_t capacity_;
};

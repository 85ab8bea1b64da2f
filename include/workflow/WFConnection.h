#pragma once

#include <functional>
#include <mutex>
#include <utility>

// What users keep with a connection: a context that lives as long as it, or until it is replaced.
// Thread-safe. The deleter, which may be null, gets the context when it is replaced or when the
// connection goes.
class WFConnection {
 public:
  void *get_context() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return context_;
  }

  void set_context(void *context) { set_context(context, nullptr); }
  void set_context(void *context, std::function<void(void *)> deleter) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::swap(context_, context);
      deleter_.swap(deleter);
    }
    if (deleter) deleter(context);
  }

  // Replaces the context only if it is `test_context` now, in one step. Returns the context
  // afterwards: `new_context` when it was set, else the one that is there.
  void *test_set_context(void *test_context, void *new_context) {
    return test_set_context(test_context, new_context, nullptr);
  }
  void *test_set_context(void *test_context, void *new_context,
                         std::function<void(void *)> deleter) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (context_ != test_context) return context_;
      context_ = new_context;
      deleter_.swap(deleter);
    }
    if (deleter) deleter(test_context);
    return new_context;
  }

  WFConnection() = default;
  WFConnection(const WFConnection &) = delete;
  WFConnection &operator=(const WFConnection &) = delete;

 protected:
  virtual ~WFConnection() {
    if (deleter_) deleter_(context_);
  }

 private:
  friend class WFServerBase;

  mutable std::mutex mutex_;
  void *context_ = nullptr;
  std::function<void(void *)> deleter_;
};

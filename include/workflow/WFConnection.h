#pragma once

#include <functional>
#include <mutex>
#include <utility>

// A connection as users see it. It holds one pointer of the user, the context. The deleter that was
// given with a context, and may be null, is called with it when it is replaced, on the thread that
// replaces it, and when the connection is destroyed, on any thread. Without a deleter the user
// frees the context. Thread-safe; but a pointer from get_context() may be freed as soon as another
// thread replaces the context.
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

  // Atomically replaces the context if it is `test_context`. Returns the context afterwards:
  // `new_context` if it was set, otherwise the present one.
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

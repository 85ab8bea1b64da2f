#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace workflow {

// A pointer that owns one reference to an object which counts its references: T has retain() and
// release(), and release() of the last reference ends the object. May be null. Not thread-safe
// itself; the objects' counts are.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  // Adds a reference.
  explicit Ref(T *object) : object_(object) {
    if (object_) object_->retain();
  }
  // Takes over a reference that the caller has, such as the first one of a new object.
  static Ref adopt(T *object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  Ref(const Ref &other) : Ref(other.object_) {}
  Ref(Ref &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // What this pointed to is released last, when `other` ends.
  Ref &operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }

  T *get() const { return object_; }
  T *operator->() const { return object_; }
  T &operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T *object_ = nullptr;
};

// The count behind retain() and release(), or of the users of an object, the last of which ends it.
// A new object has one reference, its creator's, unless it begins with several.
class RefCount {
 public:
  explicit constexpr RefCount(int begin = 1) : count_(begin) {}

  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  // Returns whether that was the last reference. If so, what other threads did before they dropped
  // theirs is visible.
  bool drop() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool none() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  // add() is relaxed: its caller relies on another reference, so the count publishes nothing then.
  // drop() releases what this thread did, and acquires what others did, for the last one. none()
  // acquires, too.
  std::atomic<int> count_;
};

}  // namespace workflow

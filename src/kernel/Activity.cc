#include "kernel/Activity.h"

#include <utility>

#include "kernel/ThreadContext.h"

namespace workflow {

Activity::Activity(const char* what, const void* subject, Describe describe)
    : what_(what),
      subject_(subject),
      describe_(describe),
      outer_(std::exchange(ThreadContext::current().activity, this)) {}

Activity::~Activity() {
  ThreadContext::current().activity = outer_;
}

bool Activity::is_in(const Activity* innermost, const void* subject) {
  const Activity* activity = innermost;
  while (activity && activity->subject_ != subject) {
    activity = activity->outer_;
  }
  return activity != nullptr;
}

}  // namespace workflow

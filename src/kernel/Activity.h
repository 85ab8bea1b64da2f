#pragma once

#include <string>

namespace workflow {

// Notes about what threads run and what they wait for, so that a simulation can report which thread
// waits for which if they wait for ever. Each note lives on the stack of the thread that it
// describes. Other threads do not read it; only the report of a simulation does, when none of its
// threads runs.

// Returns the name of `subject` for a report, such as: timer "a". Takes no lock.
using Describe = std::string (*)(const void* subject);

// States that the calling thread runs user code of `subject`, and that other threads may wait for
// the end of `subject`.
class Activity {
 public:
  // `what` is for example: the callback of.
  Activity(const char* what, const void* subject, Describe describe);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // Whether `innermost`, or an activity that encloses it, has that subject.
  static bool is_in(const Activity* innermost, const void* subject);
  std::string text() const { return what_ + (" " + describe_(subject_)); }

 private:
  const char* const what_;
  const void* const subject_;
  const Describe describe_;
  const Activity* const outer_;
};

// A wait that user code has requested.
struct WaitNote {
  // The call that waits, for example: cancel_and_wait().
  const char* how = "a wait of the library";
  // The object for whose end it waits, if that is known.
  const void* subject = nullptr;
  Describe describe = nullptr;
};

}  // namespace workflow

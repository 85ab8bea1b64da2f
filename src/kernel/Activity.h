#pragma once

#include <string>

namespace workflow {

// What threads run and what they wait for, so that a simulation can tell who waits for whom when
// they wait for ever. Notes on the stacks of the threads that they are about; nobody else's thread
// looks at them, but the report of a simulation, when none of its threads runs.

// Names something in a report, as in: timer "a". Takes no lock.
using Describe = std::string (*)(const void* subject);

// The calling thread runs user code of `subject`, for whose end others may wait.
class Activity {
 public:
  // `what` as in: the callback of.
  Activity(const char* what, const void* subject, Describe describe);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // Whether `innermost`, or what is around it, is one of that subject.
  static bool is_in(const Activity* innermost, const void* subject);
  std::string text() const { return what_ + (" " + describe_(subject_)); }

 private:
  const char* const what_;
  const void* const subject_;
  const Describe describe_;
  const Activity* const outer_;
};

// A wait that user code has asked for.
struct WaitNote {
  // As in: cancel_and_wait().
  const char* how = "a wait of the library";
  // For whose end it waits, if that is known.
  const void* subject = nullptr;
  Describe describe = nullptr;
};

}  // namespace workflow

#pragma once

#include <memory>

#include "kernel/DeadlineScope.h"
#include "server/ServerPeer.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// Knows what has to be notified when the client is lost while its request is processed: the user's
// hook and the scope of the request, if the user has asked for that. The stream of the reply is
// always notified, in the same notice.
//
// Owned by a ServerConnection and guarded by its Channel lock. Nothing is notified under that lock:
// a Notice holds what has to be notified after the lock is released.
//
// Invariant: series_ is that of the last request. It and its scope are alive as long as the Channel
// lock is held while the request is processed, and in calls that the series makes.
class ClientWatch {
 public:
  using OnLeaving = ServerPeer::OnLeaving;

  struct Notice {
    std::shared_ptr<LeaveHook> hook;
    std::shared_ptr<ReplyStream> stream;
    Runnable* cancel = nullptr;  // ends what has to end in the scope

    // Ends the stream, and appends to `posted` what a handler thread must run. The hook comes
    // before the end of the scope, with which the exchange may end.
    void tell(int error, RunnableList& posted) const;
  };

  void begin(SeriesWork* series) { series_ = series; }
  // See ServerPeer::watch_leaving(). An earlier hook is swapped into `hook`.
  void add(std::shared_ptr<LeaveHook>& hook, OnLeaving what);
  // Whether anything is to happen when the client leaves.
  bool is_asked() const { return hook_ || on_leaving_ != OnLeaving::kNothing; }

  // The client is lost, or was when the series made the call that has led here. The hook and the
  // end of the scope happen once.
  void lose(Notice& notice);
  // The scope has to end, whether or not anybody has asked for it.
  void end_scope(Notice& notice) { cancel(OnLeaving::kEndScope, notice); }
  Ref<DeadlineScope> scope() const;
  // The request is not processed any more.
  void end(Notice& notice);

 private:
  void cancel(OnLeaving what, Notice& notice);

  SeriesWork* series_ = nullptr;
  std::shared_ptr<LeaveHook> hook_;
  OnLeaving on_leaving_ = OnLeaving::kNothing;
};

}  // namespace workflow

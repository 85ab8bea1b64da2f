#pragma once

#include <memory>

#include "kernel/EndClaim.h"
#include "util/Mutex.h"

namespace workflow {

class ClientConnection;
class ClientEndpoint;
class ClientHub;
class ClientSession;
class SessionPlace;

// The entry by which a session ends before its time: why it shall, and where it is, so that it can
// be found there.
//
// Made for an exchange whose task can be interrupted; others have none. Who interrupts may hold any
// lock, so a handler's turn does the rest.
//
// X is mutex_, and guards where the session is. Order H, E or C, then X; under X nothing is called.
//
// Invariants:
// 1. Who has a session ends it, here as everywhere: the turn takes it out of the look-ups or of an
//    endpoint's queue, and has it then; of a connection it asks to do that.
// 2. A session arrives at a place under the lock of that place: H, E or C. Whether it shall end is
//    looked at there. It is said before the turn looks for the place; so either the turn finds the
//    session there, or who brings it finds that it shall end, and has it still.
// 3. So once it is said the session arrives nowhere any more, and what the turn has found is where
//    it was last.
// 4. Under the lock of a place a session is known by its EarlyEnd. Its own address may be that of
//    another one by then.
class EarlyEnd final : public EndClaim {
 public:
  EarlyEnd() = default;

  // The session arrives. Not 0: it does not, but shall end.
  int at_look_up(ClientHub& hub, ClientSession* session);
  int in_queue(std::shared_ptr<ClientEndpoint> endpoint);
  int on_connection(ClientConnection* connection);
  // It is on its way again. By who has it, with no lock held.
  void leave();
  // The exchange has ended, and nobody asks any more. The same.
  void give_up();

  void take_turn() override;

  SessionPlace* waiter = nullptr;  // while it is in a queue; guarded by the endpoint's E

 private:
  // A queue may be followed by a connection, which counts then; leave() ends both.
  struct Place {
    ClientHub* hub = nullptr;
    ClientSession* session = nullptr;  // with hub
    std::shared_ptr<ClientEndpoint> endpoint;
    ClientConnection* connection = nullptr;  // a reference
  };

  ~EarlyEnd() override = default;

  Place place() const;

  mutable Mutex mutex_;  // X
  Place place_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

#include "client/SessionLocation.h"

#include <cassert>
#include <utility>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"

namespace workflow {

int SessionLocation::enter_lookup(ClientHub& hub, ClientSession* session) {
  MutexLock lock(mutex_);
  const int reason = exchange_.end_reason();
  if (reason == 0) {
    place_.hub = &hub;
    place_.session = session;
  }
  return reason;
}

int SessionLocation::in_queue(std::shared_ptr<ClientEndpoint> endpoint) {
  MutexLock lock(mutex_);
  assert(!place_.connection);
  const int reason = exchange_.end_reason();
  if (reason == 0) {
    place_.endpoint.swap(endpoint);  // what was there is the same
  }
  return reason;
}

int SessionLocation::on_connection(ClientConnection* connection) {
  MutexLock lock(mutex_);
  const int reason = exchange_.end_reason();
  if (reason == 0 && place_.connection.get() != connection) {
    assert(!place_.connection);
    place_.connection = Ref(connection);
  }
  return reason;
}

SessionLocation::Place SessionLocation::place() const {
  MutexLock lock(mutex_);
  return place_;
}

void SessionLocation::leave() {
  Place left;  // released without the lock
  MutexLock lock(mutex_);
  std::swap(left, place_);
}

void SessionLocation::cancel(int reason) {
  const Place found = place();
  if (found.connection) {
    found.connection->cancel(*this, reason);
  } else if (found.endpoint) {
    found.endpoint->cancel(*this, reason);
  } else if (found.hub) {
    found.hub->cancel(*this, found.session, reason);
  }
}

}  // namespace workflow

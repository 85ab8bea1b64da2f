#include "client/EarlyEnd.h"

#include <cassert>
#include <utility>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"

namespace workflow {

int EarlyEnd::at_look_up(ClientHub& hub, ClientSession* session) {
  MutexLock lock(mutex_);
  if (error() == 0) {
    place_.hub = &hub;
    place_.session = session;
  }
  return error();
}

int EarlyEnd::in_queue(std::shared_ptr<ClientEndpoint> endpoint) {
  MutexLock lock(mutex_);
  assert(!place_.connection);
  if (error() == 0) {
    place_.endpoint.swap(endpoint);  // what was there is the same
  }
  return error();
}

int EarlyEnd::on_connection(ClientConnection* connection) {
  MutexLock lock(mutex_);
  if (error() == 0 && place_.connection != connection) {
    assert(!place_.connection);
    connection->retain();
    place_.connection = connection;
  }
  return error();
}

EarlyEnd::Place EarlyEnd::place() const {
  MutexLock lock(mutex_);
  if (place_.connection) {
    place_.connection->retain();
  }
  return place_;
}

void EarlyEnd::leave() {
  Place left;
  {
    MutexLock lock(mutex_);
    left = std::exchange(place_, Place());
  }
  if (left.connection) {
    left.connection->release();
  }
}

void EarlyEnd::give_up() {
  leave();
  unref();
}

void EarlyEnd::take_turn() {
  // Before the lock: X orders this after who arrived without having seen the error.
  const Place found = place();
  if (found.connection) {
    found.connection->interrupt(this);
    found.connection->release();
  } else if (found.endpoint) {
    found.endpoint->interrupt(this);
  } else if (found.hub) {
    found.hub->interrupt(this, found.session);
  }
  unref();
}

}  // namespace workflow

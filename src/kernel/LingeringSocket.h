#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/Poller.h"
#include "util/UniqueFd.h"

namespace workflow {

// A socket that nobody needs any more, but that close(2) would end too early, because its peer has
// not acknowledged everything yet or is in the middle of sending. After close(2) the kernel would
// go on delivering the rest, but it would answer whatever the peer sends with a reset. With a reset
// the rest is lost, and a peer whose write fails because of it may never read what it has received.
// So the socket stays open for a while, and what the peer still sends is read and dropped
// (RFC 9112, 9.6).
//
// Has no owner: it deletes itself, and closes the descriptor, when the peer closes, when its time
// is up, or when the poller stops.
class LingeringSocket final : public IoHandler, public TimerNode {
 public:
  // Poller's thread only. Ends a connection: shuts its sending side down, and closes it as
  // described above. The descriptor must be non-blocking, and no longer registered with the poller.
  // `is_sending` says that the peer may be in the middle of sending. If it is not, and has
  // acknowledged everything over TCP, the descriptor is closed at once; likewise where memory has
  // run out or the poller has stopped. Once `size_limit` bytes have been read it reads no more.
  static void end_connection(Poller& poller, UniqueFd fd, int64_t deadline_ns, size_t size_limit,
                             bool is_sending);

 private:
  LingeringSocket(Poller& poller, UniqueFd fd, size_t size_limit);

  void on_events(uint32_t events, RunnableList& finished) override;
  void on_retired() override { delete this; }
  void left_queue(bool stopped, RunnableList& finished) override;

  void end();

  Poller& poller_;
  const UniqueFd fd_;
  size_t bytes_left_;  // how many bytes may still be read
  bool ending_ = false;
};

}  // namespace workflow

#pragma once

#include <memory>

#include "client/ClientFailure.h"
#include "kernel/Stream.h"
#include "workflow/HttpMessage.h"

namespace workflow {

class ClientEndpoint;

// What happens between connect(2) and the first request: the connection is made, then a proxy may
// be asked for a tunnel to the peer, then TLS may be agreed on, and then the peer may be greeted.
// For datagrams only the first of these exists, and it does not wait.
//
//  stage         waits for  ends when                           and is followed by
//  kConnecting   room       the socket is connected             kTunneling if there is a proxy,
//                                                               otherwise as kTunneling
//  kTunneling    bytes      the proxy has answered with a 2xx   kHandshaking if there is TLS,
//                                                               otherwise as kHandshaking
//  kHandshaking  bytes      the handshake is over               kGreeting if there is a greeting,
//                                                               otherwise the end
//  kGreeting     room       the greeting is sent                kAnswering
//  kAnswering    bytes      the peer has answered it            the end
//
// Belongs to a connection. Not thread-safe: the connection's lock guards it and the stream.
class ConnectionSetup {
 public:
  explicit ConnectionSetup(const ClientEndpoint& endpoint) : endpoint_(endpoint) {}

  enum class Progress {
    kWaits,       // call advance() again after an event
    kAgain,       // call advance() again, because more may have come already
    kHandshakes,  // as kAgain, and the time limit of the TLS handshake begins
    kDone,
    kFailed  // `*failure` is set
  };
  Progress advance(Stream& stream, ClientFailure* failure);

  // Whether advance() reads, and so waits for bytes, and not for room to write.
  bool reads() const { return stage_ != Stage::kConnecting && stage_ != Stage::kGreeting; }
  bool is_handshaking() const { return stage_ == Stage::kHandshaking; }

 private:
  enum class Stage { kConnecting, kTunneling, kHandshaking, kGreeting, kAnswering };

  Progress finish_connecting(Stream& stream, ClientFailure* failure);
  Progress ask_proxy(Stream& stream, ClientFailure* failure);
  Progress read_proxy_reply(Stream& stream, ClientFailure* failure);
  Progress reached_peer(Stream& stream, ClientFailure* failure);
  Progress handshake(Stream& stream, ClientFailure* failure);
  // The bytes that go to the peer from now on are those of the user of the connection.
  Progress ready_for_use(Stream& stream, ClientFailure* failure);
  Progress greet(Stream& stream, ClientFailure* failure);
  Progress read_answer(Stream& stream, ClientFailure* failure);

  const ClientEndpoint& endpoint_;
  Stage stage_ = Stage::kConnecting;
  std::unique_ptr<protocol::HttpResponse> proxy_reply_;  // in kTunneling
  size_t greeted_ = 0;                                   // in kGreeting: how many bytes are sent
  std::unique_ptr<protocol::ProtocolMessage> answer_;    // in kAnswering
};

}  // namespace workflow

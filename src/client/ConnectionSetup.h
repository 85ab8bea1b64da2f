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
//  stage         needed if            waits for  ends when
//  kConnecting   always               room       the socket is connected
//  kTunneling    there is a proxy     bytes      the proxy has answered with a 2xx
//  kHandshaking  TLS is used          bytes      the handshake is over
//  kGreeting     there is a greeting  room       the greeting is sent
//  kAnswering    there is a greeting  bytes      the peer has answered the greeting
//
// Each stage is followed by the next one that is needed. After the last one the setup is done.
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

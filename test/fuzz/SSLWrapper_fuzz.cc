#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "Fuzzing.h"
#include "support/SSLPair.h"
#include "workflow/SSLWrapper.h"

// Whatever bytes a client sends where TLS should begin: the verdict does not depend on how they are
// cut. Whatever text is sent over TLS arrives, and takes exactly its records.

using fuzzing::Cuts;
using fuzzing::require;
using ssl_pair::Session;
using ssl_pair::Text;

namespace {

// The ends of one connection whose handshake is done.
struct Pair {
  ssl_pair::Contexts contexts{TLS1_3_VERSION};
  Session client{SSL_new(contexts.client.get())};
  Session server{SSL_new(contexts.server.get())};

  Pair() {
    SSL_CTX_set_num_tickets(contexts.server.get(), 0);
    SSL_set_num_tickets(server.get(), 0);
    protocol::SSLHandshaker out(client.get()), in(client.get()), server_in(server.get());
    ssl_pair::Wire client_wire, server_wire;
    in.set_channel(&client_wire);
    server_in.set_channel(&server_wire);
    require(ssl_pair::append_pieces(server_in, ssl_pair::encode(out)) == 0);
    require(ssl_pair::append_pieces(in, server_wire.take()) == 1);
    require(ssl_pair::append_pieces(server_in, client_wire.take()) == 1);
  }
};

struct Verdict {
  int result = 0;
  int error = 0;
  bool answered = false;

  bool operator==(const Verdict&) const = default;
};

Verdict receive_noise(Pair& pair, std::string_view bytes, const Cuts& cuts) {
  Session server(SSL_new(pair.contexts.server.get()));
  ssl_pair::Wire wire;
  Text text("", SIZE_MAX);
  protocol::ServerSSLWrapper wrapper(&text, server.get());
  wrapper.set_channel(&wire);
  Verdict verdict;
  size_t consumed = 0;
  verdict.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    return wrapper.append(piece, size);
  });
  require(verdict.result <= 0 && text.bytes.empty());
  if (verdict.result < 0) verdict.error = errno;
  require(verdict.result == 0 || verdict.error == EBADMSG || verdict.error == ECONNRESET);
  verdict.answered = !wire.written.empty();
  return verdict;
}

void check_arrives(Pair& pair, std::string_view bytes, const Cuts& cuts) {
  Text sent(bytes, bytes.size());
  protocol::SSLWrapper out(&sent, pair.client.get());
  std::string wire = ssl_pair::encode(out);
  const size_t size = wire.size();
  wire += "rest";
  Cuts scaled;
  for (size_t cut : cuts)
    scaled.push_back(cut * (size - 1) / bytes.size());
  Text received("", bytes.size());
  protocol::SSLWrapper in(&received, pair.server.get());
  size_t consumed = 0;
  require(fuzzing::feed(wire, scaled, &consumed, [&](const char* piece, size_t* count) {
            return in.append(piece, count);
          }) == 1);
  require(consumed == size && received.bytes == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Pair pair;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Verdict whole = receive_noise(pair, bytes, {});
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) {
    require(receive_noise(pair, bytes, cuts) == whole);
    if (!bytes.empty()) check_arrives(pair, bytes, cuts);
  });
  return 0;
}

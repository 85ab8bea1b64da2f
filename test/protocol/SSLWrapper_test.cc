#include "workflow/SSLWrapper.h"

#include <gtest/gtest.h>
#include <openssl/err.h>

#include <cerrno>
#include <string>
#include <utility>

#include "support/SSLPair.h"
#include "workflow/HttpMessage.h"
#include "workflow/TLVMessage.h"

using namespace protocol;
using ssl_pair::append_pieces;
using ssl_pair::Contexts;
using ssl_pair::encode;
using ssl_pair::Session;
using ssl_pair::Text;
using ssl_pair::Wire;

namespace {

constexpr char kPutExpecting[] =
    "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";

class SSLWrappers : public testing::TestWithParam<int> {
 protected:
  // Every test begins with what another connection may have left behind.
  void SetUp() override { ERR_raise(ERR_LIB_SSL, SSL_R_BAD_PACKET); }

  Contexts& contexts() {
    static Contexts tls12(TLS1_2_VERSION);
    static Contexts tls13(TLS1_3_VERSION);
    return GetParam() == TLS1_2_VERSION ? tls12 : tls13;
  }

  // Both handshakes, fed in pieces of at most `step` bytes.
  void handshake(size_t step = SIZE_MAX) {
    SSLHandshaker out(client.get()), in(client.get()), server_in(server.get());
    in.set_channel(&client_wire);
    server_in.set_channel(&server_wire);
    std::string to_server = encode(out);
    int client_done = 0;
    int server_done = 0;
    for (int round = 0; round < 10 && !to_server.empty(); ++round) {
      if (server_done == 0) server_done = append_pieces(server_in, to_server, step, &to_server);
      EXPECT_TRUE(to_server.empty());
      to_client += server_wire.take();
      if (client_done == 0) client_done = append_pieces(in, to_client, step, &to_client);
      to_server = client_wire.take();
    }
    EXPECT_EQ(server_done, 1);
    EXPECT_EQ(client_done, 1);
  }

  void send(Session& from, Session& to, Wire& wire, const std::string& text, size_t step,
            std::string before = "") {
    Text plain(text);
    SSLWrapper out(&plain, from.get());
    Text received("", text.size());
    SSLWrapper in(&received, to.get());
    in.set_channel(&wire);
    std::string rest;
    EXPECT_EQ(append_pieces(in, std::move(before) + encode(out), step, &rest), 1);
    EXPECT_EQ(rest, "");
    EXPECT_EQ(received.bytes, text);
  }

  Session client{SSL_new(contexts().client.get())};
  Session server{SSL_new(contexts().server.get())};
  Wire client_wire, server_wire;
  std::string to_client;  // after the handshake: session tickets, where they come late
};

INSTANTIATE_TEST_SUITE_P(TLS, SSLWrappers, testing::Values(TLS1_2_VERSION, TLS1_3_VERSION),
                         [](const auto& version) {
                           return version.param == TLS1_2_VERSION ? "1_2" : "1_3";
                         });

TEST_P(SSLWrappers, HandshakeAndMessagesInAnyPieces) {
  for (const size_t step : {SIZE_MAX, size_t{1}, size_t{2}, size_t{5}, size_t{7}, size_t{100}}) {
    client.reset(SSL_new(contexts().client.get()));
    server.reset(SSL_new(contexts().server.get()));
    to_client.clear();
    handshake(step);
    EXPECT_STREQ(SSL_get_version(client.get()),
                 GetParam() == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    send(client, server, server_wire, "hello", step);
    send(server, client, client_wire, "world", step, to_client);
    send(client, server, server_wire, std::string(50000, 'x') + "end", step);
    send(server, client, client_wire, "again", step);
  }
}

// Each flight cut in two at every place.
TEST_P(SSLWrappers, HandshakeCutAtEveryPlace) {
  bool more = true;
  for (size_t cut = 1; more; ++cut) {
    client.reset(SSL_new(contexts().client.get()));
    server.reset(SSL_new(contexts().server.get()));
    SSLHandshaker out(client.get()), in(client.get()), server_in(server.get());
    in.set_channel(&client_wire);
    server_in.set_channel(&server_wire);
    std::string flight = encode(out);
    more = false;
    bool to_server = true;
    int done[2] = {0, 0};
    while (!flight.empty()) {
      SSLHandshaker& reader = to_server ? server_in : in;
      int& result = done[to_server ? 1 : 0];
      more = more || cut < flight.size();
      result = append_pieces(reader, flight.substr(0, cut));
      std::string second = flight.substr(std::min(cut, flight.size()));
      if (result == 0) result = append_pieces(reader, second);
      ASSERT_GE(result, 0);
      flight = (to_server ? server_wire : client_wire).take();
      to_server = !to_server;
      if (to_server && done[1] == 1) break;
    }
    EXPECT_EQ(done[0], 1) << cut;
    EXPECT_EQ(done[1], 1) << cut;
  }
}

TEST_P(SSLWrappers, MessageCutAtEveryPlaceCountsItsBytes) {
  handshake();
  send(server, client, client_wire, "tickets first", SIZE_MAX, to_client);
  for (size_t cut = 0, size = 1; cut < size; ++cut) {
    TLVMessage sent, received;
    sent.set_value("some value");
    SSLWrapper out(&sent, client.get());
    SSLWrapper in(&received, server.get());
    const std::string wire = encode(out);
    size = wire.size();
    EXPECT_EQ(append_pieces(in, wire.substr(0, cut)), 0);
    size_t taken = size - cut + 4;
    EXPECT_EQ(in.append((wire.substr(cut) + "next").data(), &taken), 1);
    EXPECT_EQ(taken, size - cut);
    EXPECT_EQ(*received.get_value(), "some value");
  }
}

TEST_P(SSLWrappers, ServerWrapperShakesHandsOnTheWay) {
  for (const size_t step : {SIZE_MAX, size_t{1}, size_t{3}}) {
    client.reset(SSL_new(contexts().client.get()));
    server.reset(SSL_new(contexts().server.get()));
    SSLHandshaker out(client.get()), in(client.get());
    TLVMessage question, heard;
    question.set_value("question");
    ServerSSLWrapper listening(&heard, server.get());
    listening.set_channel(&server_wire);
    in.set_channel(&client_wire);
    EXPECT_EQ(append_pieces(listening, encode(out), step), 0);
    if (append_pieces(in, server_wire.take(), step) == 0) {
      EXPECT_EQ(append_pieces(listening, client_wire.take(), step), 0);
      EXPECT_EQ(append_pieces(in, server_wire.take(), step), 1);
    }
    SSLWrapper asking(&question, client.get());
    std::string rest;
    EXPECT_EQ(append_pieces(listening, client_wire.take() + encode(asking), step, &rest), 1);
    EXPECT_EQ(rest, "");
    EXPECT_EQ(*heard.get_value(), "question");

    TLVMessage answer, got;
    answer.set_value("answer");
    SSLWrapper answering(&answer, server.get());
    SSLWrapper getting(&got, client.get());
    EXPECT_EQ(append_pieces(getting, server_wire.take() + encode(answering), step), 1);
    EXPECT_EQ(*got.get_value(), "answer");

    TLVMessage second;
    ServerSSLWrapper later(&second, server.get());
    EXPECT_EQ(append_pieces(later, encode(asking), step), 1) << "no second handshake";
    EXPECT_EQ(*second.get_value(), "question");
  }
}

TEST_P(SSLWrappers, WhatFollowsInTheSameRecordIsTheNextMessage) {
  handshake();
  Text both("firstsecond");
  SSLWrapper out(&both, client.get());
  Text first("", 5), second("", 6);
  SSLWrapper first_in(&first, server.get()), second_in(&second, server.get());
  EXPECT_EQ(append_pieces(first_in, encode(out)), 1);
  EXPECT_EQ(first.bytes, "first");
  EXPECT_EQ(SSL_pending(server.get()), 6);
  size_t none = 0;
  EXPECT_EQ(second_in.append("", &none), 1);
  EXPECT_EQ(second.bytes, "second");
}

TEST_P(SSLWrappers, TheNextRecordIsLeftToTheNextMessage) {
  handshake();
  Text one("first"), two("second");
  SSLWrapper one_out(&one, client.get()), two_out(&two, client.get());
  std::string wire = encode(one_out);
  const size_t size = wire.size();
  wire += encode(two_out);
  Text first("", 5);
  SSLWrapper in(&first, server.get());
  size_t taken = wire.size();
  EXPECT_EQ(in.append(wire.data(), &taken), 1);
  EXPECT_EQ(taken, size);
}

TEST_P(SSLWrappers, FeedbackIsEncrypted) {
  handshake();
  Text put(kPutExpecting);
  SSLWrapper out(&put, client.get());
  protocol::HttpRequest request;
  SSLWrapper in(&request, server.get());
  in.set_channel(&server_wire);
  EXPECT_EQ(append_pieces(in, encode(out)), 0);
  Text interim("", 25);
  SSLWrapper getting(&interim, client.get());
  const std::string answer = server_wire.take();
  EXPECT_EQ(answer.find("Continue"), std::string::npos);
  EXPECT_EQ(append_pieces(getting, to_client + answer), 1);
  EXPECT_EQ(interim.bytes, "HTTP/1.1 100 Continue\r\n\r\n");
}

TEST_P(SSLWrappers, SmallPiecesShareARecord) {
  handshake();
  TLVMessage message;
  message.set_value("abc");
  SSLWrapper wrapper(&message, client.get());
  const std::string bytes = encode(wrapper);
  const size_t length = static_cast<size_t>(static_cast<unsigned char>(bytes[3])) << 8 |
                        static_cast<unsigned char>(bytes[4]);
  EXPECT_EQ(bytes.size(), 5 + length);
}

TEST_P(SSLWrappers, BeforeTheHandshakeThereIsNothingToSendOrReceive) {
  TLVMessage message;
  SSLWrapper wrapper(&message, client.get());
  struct iovec vectors[2];
  EXPECT_EQ(wrapper.encode(vectors, 2), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(append_pieces(wrapper, "x"), -1);
  EXPECT_EQ(errno, ENOTCONN);
  SSLHandshaker out(client.get());
  encode(out);
  EXPECT_EQ(wrapper.encode(vectors, 2), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST_P(SSLWrappers, NoiseIsRefused) {
  const std::string in_a_record("\x16\x03\x01\x00\x05noise and more noise", 25);
  for (const std::string& noise : {std::string("GET / HTTP/1.1\r\n\r\n"), in_a_record}) {
    for (const size_t step : {SIZE_MAX, size_t{1}}) {
      server.reset(SSL_new(contexts().server.get()));
      TLVMessage message;
      ServerSSLWrapper wrapper(&message, server.get());
      wrapper.set_channel(&server_wire);
      EXPECT_EQ(append_pieces(wrapper, noise, step), -1);
      EXPECT_EQ(errno, EBADMSG);
    }
  }
}

TEST_P(SSLWrappers, ABadByteAnywhereInARecordIsRefusedAndThePeerTold) {
  handshake();
  Text plain("some text");
  SSLWrapper out(&plain, client.get());
  std::string wire = encode(out);
  wire.back() = static_cast<char>(wire.back() ^ 1);
  Text received("", 9);
  SSLWrapper in(&received, server.get());
  in.set_channel(&server_wire);
  EXPECT_EQ(append_pieces(in, wire), -1);
  EXPECT_EQ(errno, EBADMSG);
  EXPECT_FALSE(server_wire.take().empty());
  EXPECT_EQ(received.bytes, "");
}

TEST_P(SSLWrappers, AnUntrustedServerIsRefused) {
  SSL_set_verify(client.get(), SSL_VERIFY_PEER, nullptr);
  SSLHandshaker out(client.get()), in(client.get()), server_in(server.get());
  in.set_channel(&client_wire);
  server_in.set_channel(&server_wire);
  EXPECT_EQ(append_pieces(server_in, encode(out)), 0);
  EXPECT_EQ(append_pieces(in, server_wire.take()), -1);
  EXPECT_EQ(errno, EBADMSG);
  EXPECT_EQ(SSL_get_verify_result(client.get()), X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT);
  EXPECT_EQ(append_pieces(server_in, client_wire.take()), -1) << "the alert says so";
  EXPECT_EQ(errno, EBADMSG);
}

// What tells the peer that TLS ends.
std::string close_notify(Session& from) {
  SSL_shutdown(from.get());
  std::string bytes(BIO_ctrl_pending(SSL_get_wbio(from.get())), '\0');
  BIO_read(SSL_get_wbio(from.get()), bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

TEST_P(SSLWrappers, EndOfTLSWithinAMessageIsAReset) {
  handshake();
  Text received("", 9);
  SSLWrapper in(&received, server.get());
  in.set_channel(&server_wire);
  EXPECT_EQ(append_pieces(in, close_notify(client)), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_P(SSLWrappers, EndOfTLSEndsABodyThatNothingElseEnds) {
  for (const bool orderly : {true, false}) {
    client.reset(SSL_new(contexts().client.get()));
    server.reset(SSL_new(contexts().server.get()));
    to_client.clear();
    handshake();
    Text sent("HTTP/1.1 200 OK\r\n\r\nbody");
    SSLWrapper out(&sent, server.get());
    protocol::HttpResponse response;
    SSLWrapper in(&response, client.get());
    in.set_channel(&client_wire);
    EXPECT_EQ(append_pieces(in, to_client + encode(out)), 0);
    if (orderly) {
      EXPECT_EQ(append_pieces(in, close_notify(server)), 1);
    } else {
      EXPECT_EQ(in.end_of_input(), -1) << "anyone on the way could cut it here";
      EXPECT_EQ(errno, ECONNRESET);
    }
    EXPECT_EQ(response.is_complete(), orderly);
  }
}

TEST_P(SSLWrappers, AnAnswerNeedsAConnection) {
  SSLHandshaker out(client.get()), server_in(server.get());
  EXPECT_EQ(append_pieces(server_in, encode(out)), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST_P(SSLWrappers, WhatTheConnectionDoesNotTakeGoesAheadOfWhatFollows) {
  SSLHandshaker out(client.get()), in(client.get()), server_in(server.get());
  server_in.set_channel(&server_wire);
  in.set_channel(&client_wire);
  server_wire.most = 10;
  const std::string hello = encode(out);
  EXPECT_EQ(append_pieces(server_in, hello), 0);
  EXPECT_EQ(server_wire.written.size(), 10u);
  server_wire.error = EAGAIN;
  SSLHandshaker more(server.get());
  EXPECT_EQ(append_pieces(in, server_wire.take() + encode(more)), GetParam() == TLS1_3_VERSION);
}

TEST_P(SSLWrappers, MemoryBiosOfTheCallerAreUsedAndOthersRefused) {
  SSL_set_bio(client.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  BIO* const own = SSL_get_wbio(client.get());
  handshake();
  EXPECT_EQ(SSL_get_wbio(client.get()), own);
  Session other(SSL_new(contexts().client.get()));
  SSL_set_bio(other.get(), BIO_new(BIO_s_null()), BIO_new(BIO_s_null()));
  SSLHandshaker out(other.get());
  struct iovec vector;
  EXPECT_EQ(out.encode(&vector, 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(SSLWrappers, TheSizeLimitIsOfTheDecryptedMessage) {
  handshake();
  TLVMessage sent;
  sent.set_value("abc");
  SSLWrapper out(&sent, client.get());
  for (const size_t limit : {size_t{11}, size_t{10}}) {
    TLVMessage received;
    SSLWrapper in(&received, server.get());
    in.set_size_limit(limit);
    EXPECT_EQ(append_pieces(in, encode(out)), limit == 11 ? 1 : -1);
  }
  EXPECT_EQ(errno, EMSGSIZE);
}

TEST_P(SSLWrappers, TheyCanBeMovedWhileReceiving) {
  handshake();
  TLVMessage sent, received;
  sent.set_value("abc");
  SSLWrapper out(&sent, client.get());
  const std::string wire = encode(out);
  SSLWrapper first(&received, server.get());
  EXPECT_EQ(append_pieces(first, wire.substr(0, 7)), 0);
  SSLWrapper second(std::move(first));
  EXPECT_EQ(append_pieces(second, wire.substr(7)), 1);
  EXPECT_EQ(append_pieces(first, "x"), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace

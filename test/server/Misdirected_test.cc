#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "NamedHosts.h"
#include "support/RawClient.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"

// Requests for a host on a connection that was made for another one (RFC 9110, 7.4).

namespace server_test {
namespace {

class MisdirectedRequests : public NamedHostsTest {
 protected:
  // Returns the status of the reply, whose head is read.
  static std::string status_of(TlsClient& client, const std::string& request) {
    EXPECT_TRUE(client.connected());
    EXPECT_TRUE(client.send(request));
    const std::string head = client.read_until("\r\n\r\n");
    return head.size() > 12 ? head.substr(9, 3) : head;
  }
  TlsClient certified(const std::string& host) {
    return connect({.host = host, .certificate = &of_client_});
  }

  const Settings asks_for_certificate_ = [](SSL_CTX* context) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  };
  // The ways to ask for b.test, alone or beside a.test.
  const std::vector<std::string> for_b_ = {
      get_from("b.test"),
      get_from("B.Test"),
      get_from("b.test."),
      get_from("b.test:443"),
      get_from("B.test.:"),
      "GET / HTTP/1.0\r\nHost: b.test\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: b.test\r\n\r\n",
      "CONNECT a.test:443 HTTP/1.1\r\nHost: b.test\r\n\r\n",
      "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
      "GET https://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
      "GET https://me@B.test:443?@a.test HTTP/1.1\r\nHost: a.test\r\n\r\n",
      "GET https://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
  };
};

TEST_F(MisdirectedRequests, AHostThatAsksForCertificatesIsServedOnItsOwnConnectionsOnly) {
  for (const bool required : {true, false}) {
    serve_hosts(nullptr, required ? authorised_ : asks_for_certificate_);
    for (const std::string& request : for_b_) {
      TlsClient client = connect({.host = "a.test"});
      ASSERT_EQ(status_of(client, request), "421") << request;
      EXPECT_TRUE(client.ends_in_order()) << request;
    }
    EXPECT_EQ(hosts_->requests(), 0);
  }
  serve_hosts(nullptr, authorised_);
  for (const std::string& request : for_b_) {
    TlsClient client = certified("b.test");
    EXPECT_EQ(status_of(client, request), "200") << request;
  }
}

TEST_F(MisdirectedRequests, ACertificateForOneHostDoesNotDoForAnother) {
  serve_hosts(authorised_, authorised_);
  for (const std::string host : {"a.test", "b.test"}) {
    TlsClient client = certified(host);
    EXPECT_EQ(status_of(client, get_from(host == "a.test" ? "b.test" : "a.test")), "421");
  }
}

TEST_F(MisdirectedRequests, WhereNoCertificateIsAskedForAnyHostIsServed) {
  serve_hosts(nullptr, authorised_);
  TlsClient a = connect({.host = "a.test"});
  // Of the others nothing is known; the last request names no host.
  for (const std::string host :
       {"a.test", "A.TEST.:443", "c.test", "127.0.0.1", "[::1]:443", ":443", ""}) {
    ASSERT_TRUE(a.send(get_from(host)));
    EXPECT_EQ(a.body(), "GET / ") << host;
  }
  EXPECT_EQ(status_of(a, "GET / HTTP/1.0\r\n\r\n"), "200");
  TlsClient b = certified("b.test");
  EXPECT_EQ(status_of(b, get_from("a.test")), "200");
  serve_hosts(nullptr, nullptr);
  for (const std::string& request : for_b_) {
    // The reply to CONNECT is the last of its connection.
    TlsClient client = connect({.host = "a.test"});
    EXPECT_EQ(status_of(client, request), "200") << request;
  }
}

// A client that asks for no host has made its connection with the first context.
TEST_F(MisdirectedRequests, WithoutANameTheFirstContextDecides) {
  serve_hosts(nullptr, authorised_);
  TlsClient nameless = connect({});
  ASSERT_TRUE(nameless.send(get_from("a.test")));
  EXPECT_EQ(nameless.body(), "GET / ");
  EXPECT_EQ(status_of(nameless, get_from("b.test")), "421");
  serve_hosts(authorised_, nullptr);
  TlsClient known = connect({.certificate = &of_client_});
  for (const std::string host : {"a.test", "b.test"}) {
    ASSERT_TRUE(known.send(get_from(host)));
    EXPECT_EQ(known.body(), "GET / ") << host;
  }
  TlsClient b = connect({.host = "b.test"});
  EXPECT_EQ(status_of(b, get_from("a.test")), "421");
}

// A program that does not know a name, or gets none, may serve its first host.
TEST_F(MisdirectedRequests, WhatNamesNoKnownHostIsForTheFirst) {
  const std::string requests[] = {
      "GET / HTTP/1.0\r\n\r\n",
      "GET http://b.test/ HTTP/1.0\r\n\r\n",
      "GET http://b.test/ HTTP/1.1\r\nHost:\r\n\r\n",
      get_from(""),
      get_from(":443"),
      get_from("a.test.."),
      get_from("%61.test"),
      get_from("127.0.0.1"),
      get_from(std::string(256, 'x')),
  };
  serve_hosts(authorised_, nullptr);
  for (const std::string& request : requests) {
    TlsClient b = connect({.host = "b.test"});
    EXPECT_EQ(status_of(b, request), "421") << request;
  }
  EXPECT_EQ(hosts_->requests(), 0);
  for (const std::string host : {"a.test", ""}) {
    for (const std::string& request : requests) {
      TlsClient a = certified(host);
      EXPECT_EQ(status_of(a, request), "200") << host << request;
    }
  }
}

TEST_F(MisdirectedRequests, NamesAreLookedUpUpTo255Bytes) {
  serve_hosts(nullptr, nullptr);
  TlsClient client = connect({.host = "a.test"});
  for (const size_t size : {size_t{255}, size_t{256}}) {
    ASSERT_TRUE(client.send(get_from(std::string(size, 'x'))));
    EXPECT_EQ(client.body(), "GET / ");
    EXPECT_EQ(hosts_->lookups(), 2) << size;
  }
}

// The callback of a host's own context lets the handshake go on.
TEST_F(MisdirectedRequests, TheNameInASecondClientHelloDoesNotCount) {
  const Settings protected_a = [this](SSL_CTX* context) {
    authorised_(context);
    SSL_CTX_set1_groups_list(context, "P-384");
  };
  const Settings tolerant = [](SSL_CTX* context) {
    SSL_CTX_set_tlsext_servername_callback(
        context, +[](SSL*, int*, void*) { return SSL_TLSEXT_ERR_OK; });
  };
  serve_hosts(protected_a, tolerant);
  for (const std::string second : {"a.test", ""}) {
    TlsClient client = connect({.host = "b.test", .second_host = second});
    ASSERT_TRUE(client.send(get_from("b.test")));
    EXPECT_EQ(client.body(), "GET / ");
    EXPECT_EQ(status_of(client, get_from("a.test")), "421") << second;
  }
}

TEST_F(MisdirectedRequests, TheNameOfAResumedSessionDoesNotCount) {
  serve_hosts(nullptr, authorised_);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient::Options options = {.host = "a.test", .max_version = version};
    const Session session = session_of(connect(options));
    options.session = session.get();
    options.host = "";
    TlsClient client = connect(options);
    EXPECT_TRUE(client.resumed());
    const int lookups = hosts_->lookups();
    ASSERT_TRUE(client.send(get_from("a.test")));
    EXPECT_EQ(client.body(), "GET / ");
    EXPECT_EQ(hosts_->lookups(), lookups + 1) << version;
  }
}

// A callback that gives a connection another context, and forgets what that demands.
TEST_F(MisdirectedRequests, AContextThatDemandedNothingDoesNotCount) {
  SSL_CTX* of_a = nullptr;
  const Settings protected_a = [this, &of_a](SSL_CTX* context) {
    authorised_(context);
    of_a = context;
  };
  const Settings forgetful = [&of_a](SSL_CTX* context) {
    const auto switch_to_a = +[](SSL* ssl, int*, void* a) -> int {
      SSL_set_SSL_CTX(ssl, *static_cast<SSL_CTX**>(a));
      return SSL_TLSEXT_ERR_OK;
    };
    SSL_CTX_set_tlsext_servername_callback(context, switch_to_a);
    SSL_CTX_set_tlsext_servername_arg(context, &of_a);
  };
  serve_hosts(protected_a, forgetful);
  TlsClient client(test_support::port_of(*hosts_), {.host = "b.test"});
  EXPECT_EQ(status_of(client, get_from("a.test")), "421");
  hosts_.reset();
}

TEST_F(MisdirectedRequests, RequestsBeforeAreServedAndThoseBehindAreNot) {
  serve_hosts(nullptr, authorised_);
  TlsClient client = connect({.host = "a.test"});
  ASSERT_TRUE(client.send(get_from("a.test") + get_from("b.test") + get_from("a.test")));
  EXPECT_EQ(client.body(), "GET / ");
  ASSERT_EQ(status_of(client, ""), "421");
  EXPECT_TRUE(client.ends_in_order());
  EXPECT_EQ(hosts_->requests(), 1);
}

TEST_F(MisdirectedRequests, TheBodyIsNotWaitedFor) {
  serve_hosts(nullptr, authorised_);
  const std::string head = "POST / HTTP/1.1\r\nHost: b.test\r\nContent-Length: 100000\r\n";
  TlsClient waiting = connect({.host = "a.test"});
  ASSERT_EQ(status_of(waiting, head + "Expect: 100-continue\r\n\r\n"), "421");
  EXPECT_TRUE(waiting.ends_in_order());
  TlsClient sending = connect({.host = "a.test"});
  ASSERT_EQ(status_of(sending, head + "\r\nits beginning"), "421");
  EXPECT_TRUE(sending.ends_in_order());
}

// Otherwise a client could ask for the host in another spelling, whose context is another one.
TEST_F(MisdirectedRequests, TheHandshakeHasNoOtherSpellingsOfAName) {
  serve_hosts(nullptr, authorised_);
  for (const std::string host : {"B.test", "b.test.", "B.TEST."}) {
    const uint16_t port = test_support::port_of(*hosts_);
    EXPECT_TRUE(is_refused(TlsClient(port, {.host = host}))) << host;
    TlsClient known(port, {.host = host, .certificate = &of_client_});
    for (const std::string& request : {get_from("b.test"), get_from(host + ":443")}) {
      ASSERT_TRUE(known.send(request));
      EXPECT_EQ(known.body(), "GET / ") << host;
    }
  }
}

TEST_F(MisdirectedRequests, TheContextOfTheHostOfTheConnectionIsNotLookedUpAgain) {
  serve_hosts(nullptr, authorised_);
  TlsClient a = connect({.host = "a.test"});
  ASSERT_TRUE(a.connected());
  EXPECT_EQ(hosts_->lookups(), 1);
  for (const std::string host : {"a.test", "A.test:443", "a.test."}) {
    ASSERT_TRUE(a.send(get_from(host)));
    EXPECT_EQ(a.body(), "GET / ");
  }
  EXPECT_EQ(hosts_->lookups(), 1);
  EXPECT_EQ(status_of(a, get_from("b.test")), "421");
  EXPECT_EQ(hosts_->lookups(), 2);
}

TEST_F(MisdirectedRequests, WithoutTlsNoContextIsLookedUp) {
  hosts_.emplace();
  ASSERT_EQ(hosts_->start("127.0.0.1", 0), 0);
  RawClient client(test_support::port_of(*hosts_));
  ASSERT_TRUE(client.send(get_from("b.test")));
  EXPECT_EQ(client.status(), 200);
  EXPECT_EQ(hosts_->lookups(), 0);
}

}  // namespace
}  // namespace server_test

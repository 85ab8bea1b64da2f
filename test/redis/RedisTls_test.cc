#include "support/RedisTls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "support/Certificates.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisCommands.h"
#include "support/RedisSentinel.h"
#include "support/RedisServer.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskState.h"

// Commands over TLS: to a server, to the master that a Sentinel names, and to where the nodes of a
// Cluster lead. None of these servers listens for connections without TLS.

namespace redis_test {
namespace {

using test_support::eventually;

// The user who is logged in here has connections of its own, so a new one is made.
constexpr const char* kAnotherLogin = "default:any@";

// Why a command ends that needs a new connection.
std::string why_not(const std::string& url, const std::vector<std::string>& words) {
  const Reply reply = run(url, words);
  return reply.state == WFT_STATE_SSL_ERROR ? WFGlobal::get_error_string(reply.state, reply.error)
                                            : "state " + std::to_string(reply.state);
}
constexpr const char* kUnknownAuthority = "unable to get local issuer certificate";

TEST(RedisTls, CommandsGoOverTls) {
  TrustedAuthority authority;
  RedisServer server({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  EXPECT_EQ(run(server.url(), {"SET", "k", std::string(100000, 'x')}).text, "OK");
  EXPECT_EQ(run(server.url(), {"STRLEN", "k"}).sequence, 1);
  EXPECT_EQ(run(server.url(kAnotherLogin, 5), {"GET", "k"}).text, "nil") << "a login over TLS";
}

TEST(RedisTls, ACertificateOfAnUnknownAuthorityIsRefused) {
  TrustedAuthority authority;
  RedisServer server({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  test_support::Authority unknown;
  show_certificate_of(unknown, server);
  EXPECT_EQ(why_not(server.url(kAnotherLogin), {"PING"}), kUnknownAuthority);
}

TEST(RedisTls, ACertificateOfAnotherHostIsRefused) {
  TrustedAuthority authority;
  RedisServer server({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  std::string url = server.url();
  url.replace(url.find("127.0.0.1"), 9, "localhost");
  EXPECT_EQ(why_not(url, {"PING"}), "hostname mismatch");
}

TEST(RedisTls, CommandsGoToTheMasterOfASentinelAlsoAfterAFailover) {
  TrustedAuthority authority;
  RedisServer master({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  RedisServer replica(replica_of(master));
  ASSERT_TRUE(is_in_sync(replica));
  RedisServer sentinel(sentinel_of(master));
  const std::string url = "rediss+sentinel://" + sentinel.address() + "/main";
  EXPECT_EQ(run(url, {"SET", "k", "before"}).text, "OK");
  EXPECT_EQ(run(master.url(), {"GET", "k"}).text, "\"before\"");
  ASSERT_TRUE(knows_a_replica(sentinel));
  master.stop();
  miss_master_after(sentinel, std::chrono::milliseconds(500));
  EXPECT_TRUE(eventually([&] { return run(url, {"SET", "k", "after"}).text == "OK"; }));
  EXPECT_EQ(run(replica.url(), {"GET", "k"}).text, "\"after\"");
}

TEST(RedisTls, ASentinelAndItsMasterNeedTrustedCertificates) {
  TrustedAuthority authority;
  test_support::Authority unknown;
  RedisServer master({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  RedisServer sentinel(sentinel_of(master));
  const auto url = [&sentinel](const std::string& login) {
    return "rediss+sentinel://" + login + sentinel.address() + "/main";
  };
  EXPECT_EQ(run(url(""), {"PING"}).text, "PONG");
  show_certificate_of(unknown, master);
  EXPECT_EQ(why_not(url(kAnotherLogin), {"PING"}), kUnknownAuthority);

  // A Sentinel cannot be told to show another one.
  RedisServer other({.on = RedisServer::On::kSentinel,
                     .tls = {unknown.issue({"IP:127.0.0.1"}), master.tls().authority},
                     .configuration = "sentinel monitor main 127.0.0.1 " +
                                      std::to_string(master.port()) + " 1\n"});
  EXPECT_EQ(why_not("rediss+sentinel://" + other.address() + "/main", {"PING"}), kUnknownAuthority);
}

TEST(RedisTls, RedirectionsOfAClusterAreFollowed) {
  TrustedAuthority authority;
  RedisCluster cluster({.masters = 2, .tls = authority.tls()});
  const size_t slot = cluster.slot_of("k");
  const size_t from = cluster.owner_of(slot);
  const size_t to = 1 - from;
  EXPECT_EQ(run(cluster.node(to).url(), {"SET", "k", "v"}).text, "OK");
  EXPECT_EQ(run(cluster.node(from).url(), {"DBSIZE"}).text, "1");
  cluster.move(slot, to);
  EXPECT_EQ(run(cluster.node(from).url(), {"GET", "k"}).text, "\"v\"");
  EXPECT_EQ(run(cluster.node(to).url(), {"DBSIZE"}).text, "1");

  test_support::Authority unknown;
  show_certificate_of(unknown, cluster.node(to));
  EXPECT_EQ(run(cluster.node(from).url(kAnotherLogin), {"PING"}).text, "PONG");
  EXPECT_EQ(why_not(cluster.node(from).url(kAnotherLogin), {"GET", "k"}), kUnknownAuthority);
}

}  // namespace
}  // namespace redis_test

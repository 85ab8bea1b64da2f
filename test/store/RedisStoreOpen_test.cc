#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "store/RedisStoreKit.h"
#include "support/FakeRedis.h"
#include "support/Loopback.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

// What a store says that cannot be opened in a Redis: the message names the server and the reason.

namespace {

using redis_test::RedisServer;
using redis_test::run;
using store_test::open_backend;
using store_test::url_of;
using store_test::why_not;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string said(int error, const std::string& message) {
  return std::to_string(error) + " " + message;
}

std::string address_of(const workflow::UniqueFd& socket) {
  return "127.0.0.1:" + std::to_string(test_support::port_of(socket.get()));
}

TEST(RedisStoreOpen, AServerThatCannotBeReachedIsNamed) {
  // Nobody listens there.
  const workflow::UniqueFd sockets[] = {test_support::keep_port(), test_support::keep_port()};
  const std::string one = address_of(sockets[0]);
  const std::string other = address_of(sockets[1]);
  const std::string refused = ": Connection refused";
  const std::string login = "user:secret@";
  for (const std::string& url : {"redis://" + login + one, "rediss://" + login + one + "/3"}) {
    EXPECT_EQ(why_not(url), said(ECONNREFUSED, "Redis at " + one + refused));
  }
  EXPECT_EQ(why_not("redis+sentinel://" + login + one + "," + other + "/main"),
            said(ECONNREFUSED, "no Sentinel answers: Redis at " + one + refused + "; Redis at " +
                                   other + refused));
  EXPECT_EQ(why_not("redis+cluster://" + login + one + "," + other),
            said(ECONNREFUSED, "no node of the Cluster answers: Redis at " + one + refused +
                                   "; Redis at " + other + refused));
  // There may be no IPv6.
  const size_t colon = one.find(':');
  EXPECT_THAT(why_not("redis://" + login + "[::1]" + one.substr(colon)),
              AnyOf(said(ECONNREFUSED, "Redis at [::1]" + one.substr(colon) + refused),
                    HasSubstr("Redis at [::1]" + one.substr(colon) + ": ")));
  const test_support::TempDir folder;
  const std::string path = folder.path("redis.sock");
  EXPECT_EQ(why_not("redis+unix://" + login + path),
            said(ENOENT, "Redis at " + path + ": No such file or directory"));
  EXPECT_THAT(why_not("redis://" + login + "host.invalid"),
              StartsWith(said(EIO, "Redis at host.invalid:6379: the host was not found: ")));
}

TEST(RedisStoreOpen, AServerThatSaysSomethingElseIsNamed) {
  redis_test::RawServer server([](redis_test::Peer& peer, int) {
    char asked[4096];
    while (::recv(peer.fd(), asked, sizeof asked, 0) > 0 && peer.send("HTTP/1.1 400 No\r\n\r\n")) {
    }
  });
  const std::string address = "127.0.0.1:" + std::to_string(server.port());
  const std::string name = "Redis at " + address + ": ";
  EXPECT_EQ(why_not("redis://user:secret@" + address), said(EBADMSG, name + "Bad message"));
  EXPECT_EQ(why_not("rediss://user:secret@" + address),
            said(EIO, name + "TLS: wrong version number"));
}

TEST(RedisStoreOpen, ARefusedLoginIsNamed) {
  RedisServer server({.arguments = {"--requirepass", "secret"}});
  const std::string refused =
      said(EACCES, server.in_messages() +
                       "the server refuses the user, the password or the database of the URL");
  for (const char* login : {"", ":wrong@", "somebody:secret@"}) {
    EXPECT_EQ(why_not(server.url(login)), refused);
  }
  EXPECT_EQ(why_not(server.url(":secret@", 99)), refused);
  EXPECT_EQ(why_not(server.url(":secret@")), "open");
}

TEST(RedisStoreOpen, AServerThatCannotKeepTheStoreIsNamed) {
  RedisServer server;
  const std::string name = server.in_messages();
  EXPECT_EQ(why_not(url_of(server), false),
            said(ENOENT, name + "there is no store \"app\" on the server"));
  open_backend(url_of(server));
  EXPECT_EQ(why_not(server.url() + "&namespace=app"), "open");
  EXPECT_EQ(why_not(server.url() + "&namespace=app&shards=4"),
            said(EINVAL, name + "the store \"app\" has 3 shards, but the URL says 4: their number "
                                "cannot change"));
  run(server.url(), {"SET", "{other:0}:meta", "x"});
  run(server.url(), {"SET", "{half:0}:queue", "x"});
  for (const std::string space : {"other", "half"}) {
    EXPECT_EQ(why_not(server.url() + "&namespace=" + space),
              said(EILSEQ, name + "the keys of the store \"" + space + "\" hold something else"));
  }
  for (const std::string policy : {"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru",
                                   "volatile-lfu", "volatile-random", "volatile-ttl"}) {
    run(server.url(), {"CONFIG", "SET", "maxmemory-policy", policy});
    EXPECT_EQ(why_not(url_of(server)),
              said(EINVAL, name + "the maxmemory-policy of the server is " + policy +
                               ", which would drop timers: a store needs noeviction"));
  }
  run(server.url(), {"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  run(server.url(), {"REPLICAOF", "127.0.0.1", "1"});
  EXPECT_EQ(why_not(url_of(server)),
            said(EROFS, name + "the server is a replica: a store needs its master"));
}

}  // namespace

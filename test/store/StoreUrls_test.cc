#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "support/TempDir.h"
#include "workflow/WFTimerStore.h"

// What open() says about a URL that makes no sense.

namespace {

struct Case {
  std::string url;
  std::string message;
};

// Opens stores that must be refused with EINVAL and these messages.
void expect_refusals(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    std::string message;
    errno = 0;
    const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(one.url, &message));
    EXPECT_FALSE(store) << one.url;
    EXPECT_EQ(errno, EINVAL) << one.url;
    EXPECT_EQ(message, one.message) << one.url;
  }
}

const std::string kBeginning =
    "the URL begins with none of sqlite:, redis://, rediss://, redis+...:// and memory:";
const std::string kNoHost = "a host is missing in the URL";
const std::string kPort = "the port in the URL is not a number from 1 to 65535";
const std::string kMalformed =
    "the URL is malformed: other characters than letters, digits and -._~ have to be written as "
    "%XX in its parts";
const std::string kLogin = "the login in the URL is neither user:password@ nor :password@";
const std::string kAt =
    "the URL has an @ behind its host: in a user or a password write %2F for /, %3F for ? and %23 "
    "for #";

std::string of_scheme(const std::string& scheme) {
  return "the scheme of the URL is none of redis, rediss, redis+unix, redis+sentinel, "
         "rediss+sentinel, redis+cluster and rediss+cluster: \"" +
         scheme + "\"";
}
std::string of_db(const std::string& value) {
  return "the database in the URL is \"" + value + "\", not a number from 0 to 2147483647";
}
std::string of_value(const std::string& name, const std::string& value,
                     const std::string& allowed) {
  return name + " in the URL is \"" + value + "\": allowed are " + allowed;
}

TEST(StoreUrls, AnUnknownBeginningIsShown) {
  expect_refusals({
      {"", kBeginning + ", but is \"\""},
      {"timers.db", kBeginning + ", but is \"timers.db\""},
      {"file:/tmp/x", kBeginning + ", but with \"file:/\""},
      {"http://user:secret@host/", kBeginning + ", but with \"http://\""},
      {"redis:host", kBeginning + ", but with \"redis:\""},
      {"redis", kBeginning + ", but is \"redis\""},
      {"\n:x", kBeginning + ", but with \"\\x0a:\""},
      {"secret@host:6379", kBeginning},
      {"secret@host", kBeginning},
  });
}

TEST(StoreUrls, WhatIsWrongWithTheUrlOfAFileIsSaid) {
  const test_support::TempDir folder;
  const std::string file = "sqlite:" + folder.path("timers");
  const auto of_layout = [](const std::string& value) {
    return of_value("layout", value, "shared and owned");
  };
  const auto of_parameter = [](const std::string& name) {
    return "unknown parameter in the URL: \"" + name + "\"; there is only layout";
  };
  expect_refusals({
      {"sqlite:", "the URL names no file"},
      {"sqlite:?layout=owned", "the URL names no file"},
      {"sqlite://host/timers", "the URL names a host: write sqlite:/path, with one slash"},
      {"sqlite:///timers", "the URL names a host: write sqlite:/path, with one slash"},
      {file + "/", "the path ends in a slash: " + folder.path("timers/")},
      {file + "#x", "the path in the URL contains a #: " + folder.path("timers#x")},
      {file + std::string(1, '\0'), "the path in the URL contains a zero byte"},
      {"sqlite:/dev/null", "not a regular file: /dev/null"},
      {"sqlite:.", "not a regular file: ."},
      {file + "?shards=3", of_parameter("shards")},
      {file + "?layout=owned&shards=3", of_parameter("shards")},
      {file + "?", of_parameter("")},
      {file + "?\n", of_parameter("\\x0a")},
      {file + "?layout=one", of_layout("one")},
      {file + "?layout=", of_layout("")},
      {file + "?layout", of_layout("")},
      {file + "?layout=shared&layout=Owned", of_layout("Owned")},
  });
}

TEST(StoreUrls, AStoreInMemoryNeedsAName) {
  expect_refusals({{"memory:", "a store in memory needs a name, as in memory:NAME"}});
}

TEST(StoreUrls, WhatIsWrongWithTheUrlOfARedisIsSaid) {
  const std::string path(108, 'p');
  expect_refusals({
      {"redis+tls://host", of_scheme("redis+tls")},
      {"redis+://host", of_scheme("redis+")},
      {"rediss+unix:///run/redis.sock", of_scheme("rediss+unix")},
      {"redis://", kNoHost},
      {"redis:///0", kNoHost},
      {"rediss://?namespace=app", kNoHost},
      {"redis://user:secret@", kNoHost},
      {"redis://host:0", kPort},
      {"redis://host:65536", kPort},
      {"redis://host:port", kPort},
      {"redis://[::1]:-1", kPort},
      {"redis://user:secret", kPort},
      {"redis://a b", kMalformed},
      {"redis://user:se%cret@host", kMalformed},
      {"redis://user:secret@secret@host", kMalformed},
      {"redis://[::1", kMalformed},
      {"redis://secret@host", kLogin},
      {"redis://host/x", of_db("x")},
      {"redis://host/1/2", of_db("1/2")},
      {"redis://host/-1", of_db("-1")},
      {"redis://host/2147483648", of_db("2147483648")},
      {"redis://host?db=", of_db("")},
      {"redis://host?db", of_db("")},
      {"redis+unix://host/run/redis.sock",
       "a URL of a unix socket has no host: say redis+unix:///path, with three slashes"},
      {"redis+unix://", "the URL lacks the path of the unix socket: say redis+unix:///path"},
      {"redis+unix:///", "the URL lacks the path of the unix socket: say redis+unix:///path"},
      {"redis+unix:///" + path,
       "the path of the unix socket in the URL has 109 bytes; at most 107 are allowed"},
      {"redis+unix:///a%00b", "the path of the unix socket in the URL contains a zero byte"},
  });
}

TEST(StoreUrls, WhatIsWrongWithTheUrlOfSentinelsOrAClusterIsSaid) {
  const std::string no_name =
      "the URL lacks the name of the master: say redis+sentinel://host/name";
  expect_refusals({
      {"redis+sentinel://", kNoHost},
      {"redis+sentinel:///main", kNoHost},
      {"redis+sentinel://a,,b/main", kNoHost},
      {"redis+sentinel://a,/main", kNoHost},
      {"redis+sentinel://a,b", no_name},
      {"rediss+sentinel://a/", no_name},
      {"redis+sentinel://a?namespace=app", no_name},
      {"redis+sentinel://a/x/y", "the name of the master in the URL contains a slash: \"x/y\""},
      {"redis+sentinel://a:0/main", kPort},
      {"redis+sentinel://a:x/main", kPort},
      {"redis+sentinel://a,b:0/main", kPort},
      {"redis+sentinel://a,b:/main", kPort},
      {"redis+sentinel://secret@a/main", kLogin},
      {"redis+sentinel://a/main?db=x", of_db("x")},
      {"redis+cluster://", kNoHost},
      {"redis+cluster://?namespace=app", kNoHost},
      {"redis+cluster://a,,b/", kNoHost},
      {"rediss+cluster://user:secret@", kNoHost},
      {"redis+cluster://a,b:0", kPort},
      {"redis+cluster://a:x,b", kPort},
      {"redis+cluster://secret@a,b/", kLogin},
      {"redis+cluster://a,b/1", "the database in the URL is 1, but a Cluster has only 0"},
      {"redis+cluster://a?db=2", "the database in the URL is 2, but a Cluster has only 0"},
      {"redis+cluster://a/x", of_db("x")},
  });
}

TEST(StoreUrls, WrongParametersAreNamed) {
  const std::string url = "redis://user:secret@host/?";
  const auto of_parameter = [](const std::string& name) {
    return "unknown parameter in the URL: \"" + name +
           "\"; there are namespace, shards, replicas and db";
  };
  const auto of_namespace = [](const std::string& value) {
    return of_value("namespace", value, "1 to 64 letters, digits and characters of . _ - :");
  };
  const auto of_shards = [](const std::string& value) {
    return of_value("shards", value, "1 to 1024");
  };
  const auto of_replicas = [](const std::string& value) {
    return of_value("replicas", value, "0 to 100");
  };
  expect_refusals({
      {url + "colour=red", of_parameter("colour")},
      {url + "password=secret", of_parameter("password")},
      {url + "namespace=app&Shards=3", of_parameter("Shards")},
      {url + "&namespace=app", of_parameter("")},
      {url + "\n=x", of_parameter("\\x0a")},
      {url + "namespace=", of_namespace("")},
      {url + "namespace", of_namespace("")},
      {url + "namespace=a{b}", of_namespace("a{b}")},
      {url + "namespace=a%20b", of_namespace("a%20b")},
      {url + "namespace=" + std::string(65, 'n'),
       "namespace in the URL is \"" + std::string(40, 'n') +
           "\"...: allowed are 1 to 64 letters, digits and characters of . _ - :"},
      {url + "shards=0", of_shards("0")},
      {url + "shards=1025", of_shards("1025")},
      {url + "shards=-1", of_shards("-1")},
      {url + "shards=2x", of_shards("2x")},
      {url + "shards=", of_shards("")},
      {url + "shards=99999999999999999999", of_shards("99999999999999999999")},
      {url + "replicas=-1", of_replicas("-1")},
      {url + "replicas=101", of_replicas("101")},
      {url + "replicas=one", of_replicas("one")},
      {url + "db=x&shards=3", of_db("x")},
  });
}

// Then the rest of the password looks like a port, a database, or a parameter.
TEST(StoreUrls, APasswordThatIsNotEncodedIsNotShown) {
  for (const char* scheme : {"redis://", "rediss://", "redis+sentinel://", "redis+cluster://"}) {
    for (const char* rest :
         {"user:/secret@host/main", "user:1/secret@host/main", "user:1?secret=x@host/main",
          "user:1?shards=secret@host", "user:1?secret&x@host", "user:x#secret@host",
          "user:?secret@host/main?namespace=app"}) {
      expect_refusals({{std::string(scheme) + rest, kAt}});
    }
  }
  expect_refusals({{"redis+unix://user:1?secret@/run/redis.sock", kAt},
                   {"redis+unix:///run/a@b?colour=red",
                    "unknown parameter in the URL: \"colour\"; there are namespace, shards, "
                    "replicas and db"}});
}

}  // namespace

#include "store/RedisUrl.h"

#include <gtest/gtest.h>

#include <string>

#include "workflow/WFGlobal.h"
#include "workflow/WFTaskError.h"

using workflow::RedisUrl;

namespace {

// What a URL says, on one line; or the error.
std::string said(const std::string& text) {
  RedisUrl url;
  if (const int error = RedisUrl::parse(text, &url)) return std::to_string(error);
  std::string line = url.transport == TT_TCP_SSL ? "tls " : "";
  if (url.logs_in) {
    line += "[" + url.user + "][" + url.password + "] ";
  }
  if (!url.unix_path.empty()) {
    line += url.unix_path;
  } else if (!url.sentinels.empty()) {
    for (const RedisUrl::Server& sentinel : url.sentinels) {
      line += sentinel.host + " " + std::to_string(sentinel.port) + ", ";
    }
    line += url.master_name;
  } else {
    line += url.server.host + " " + std::to_string(url.server.port);
  }
  return line + " db " + std::to_string(url.db);
}

const std::string kParseFailed = std::to_string(WFT_ERR_URI_PARSE_FAILED);
const std::string kSchemeInvalid = std::to_string(WFT_ERR_URI_SCHEME_INVALID);
const std::string kPortInvalid = std::to_string(WFT_ERR_URI_PORT_INVALID);

TEST(RedisUrl, NamesHostPortAndDatabase) {
  EXPECT_EQ(said("redis://host"), "host 6379 db 0");
  EXPECT_EQ(said("redis://host/"), "host 6379 db 0");
  EXPECT_EQ(said("redis://host:1234/15"), "host 1234 db 15");
  EXPECT_EQ(said("REDIS://127.0.0.1/0"), "127.0.0.1 6379 db 0");
  EXPECT_EQ(said("rediss://host/1"), "tls host 6379 db 1");
  EXPECT_EQ(said("redis://[::1]:7000/2"), "::1 7000 db 2");
  EXPECT_EQ(said("redis://host?db=3"), "host 6379 db 3");
  EXPECT_EQ(said("redis://host/4?other=x#fragment"), "host 6379 db 4");
}

TEST(RedisUrl, EachSchemeHasADefaultPortOfItsOwn) {
  WFGlobal::register_scheme_port("rediss", 6380);
  EXPECT_EQ(said("rediss://host"), "tls host 6380 db 0");
  EXPECT_EQ(said("redis://host"), "host 6379 db 0");
  WFGlobal::register_scheme_port("rediss", 6379);
  EXPECT_EQ(said("rediss://host"), "tls host 6379 db 0");
}

TEST(RedisUrl, NamesWhoLogsIn) {
  EXPECT_EQ(said("redis://:secret@host"), "[][secret] host 6379 db 0");
  EXPECT_EQ(said("redis://user:secret@host"), "[user][secret] host 6379 db 0");
  EXPECT_EQ(said("redis://u%40x:p%3a%2F%00z@host").substr(0, 10), "[u@x][p:/" + std::string(1, 0));
  EXPECT_EQ(said("redis://user:a:b@host"), "[user][a:b] host 6379 db 0");
  EXPECT_EQ(said("redis://user:@host"), "[user][] host 6379 db 0");
  EXPECT_EQ(said("redis://:@host"), "host 6379 db 0");
  EXPECT_EQ(said("redis://user@host"), kParseFailed) << "a user or a password?";
}

TEST(RedisUrl, NamesAUnixSocket) {
  EXPECT_EQ(said("redis+unix:///run/redis.sock"), "/run/redis.sock db 0");
  EXPECT_EQ(said("redis+unix:///a%20b?db=2"), "/a b db 2");
  EXPECT_EQ(said("redis+unix://u:p@/run/redis.sock"), "[u][p] /run/redis.sock db 0");
  EXPECT_EQ(said("redis+unix:///"), kParseFailed);
  EXPECT_EQ(said("redis+unix:redis.sock"), kParseFailed);
  EXPECT_EQ(said("redis+unix://host/path"), kParseFailed);
  EXPECT_EQ(said("redis+unix:///a%00b"), kParseFailed);
  EXPECT_EQ(said("redis+unix:///" + std::string(108, 'x')), kParseFailed);
}

TEST(RedisUrl, NamesSentinelsAndTheMaster) {
  EXPECT_EQ(said("redis+sentinel://a/main"), "a 26379, main db 0");
  EXPECT_EQ(said("redis+sentinel://a:1,b,[::1]:3,[::2]/main?db=5"),
            "a 1, b 26379, ::1 3, ::2 26379, main db 5");
  EXPECT_EQ(said("rediss+sentinel://u:p%2C@a,b:2/m%20m"), "tls [u][p,] a 26379, b 2, m m db 0");
  for (const char* text :
       {"redis+sentinel://a,b", "redis+sentinel://a,b/", "redis+sentinel:///x",
        "redis+sentinel://a,,b/x", "redis+sentinel://a,/x", "redis+sentinel://a/x/y"}) {
    EXPECT_EQ(said(text), kParseFailed) << text;
  }
  EXPECT_EQ(said("redis+sentinel://a,b:0/x"), kPortInvalid);
  EXPECT_EQ(said("redis+sentinel://a,b:/x"), kPortInvalid);
}

TEST(RedisUrl, ReportsWhatMakesNoSense) {
  for (const char* text : {"", "redis://", "redis:///0", "redis://host/x", "redis://host/-1",
                           "redis://host/1x", "redis://host/1/2", "redis://host/99999999999",
                           "redis://host?db=", "redis://host?db=x", "redis://a b"}) {
    EXPECT_EQ(said(text), kParseFailed) << text;
  }
  for (const char* text :
       {"redis", "http://host/", "redisx://host/", "redis+tls://host", "host:6379"}) {
    EXPECT_EQ(said(text), kSchemeInvalid) << text;
  }
  for (const char* text : {"redis://host:0", "redis://host:65536", "redis://host:99999999999999"}) {
    EXPECT_EQ(said(text), kPortInvalid) << text;
  }
}

}  // namespace

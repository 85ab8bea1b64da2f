#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "support/Fetch.h"
#include "support/RawServer.h"

// What becomes of the characters of a URL, and of a redirect that names none.

namespace client_test {
namespace {

std::string target_of(const std::string& request) {
  const size_t begin = request.find(' ') + 1;
  return request.substr(begin, request.find(' ', begin) - begin);
}

TEST(Urls, WhatMayNotStandInOneIsSentPercentEncoded) {
  const std::pair<const char*, const char*> cases[] = {
      {"/\xc3\xa4?q=\xc3\xa4", "/%C3%A4?q=%C3%A4"},
      {"/\xff", "/%FF"},
      {"/{a}|\"<b>\"", "/%7Ba%7D%7C%22%3Cb%3E%22"},
      {"/%C3%A4%20%7B", "/%C3%A4%20%7B"},  // as it is
  };
  for (const auto& [written, sent] : cases) {
    std::string request;
    auto server = std::make_unique<RawServer>([&request](Peer& peer, int) {
      request = peer.request();
      peer.reply("x");
    });
    EXPECT_EQ(fetch(server->url(written)).body, "x");
    server.reset();  // its script has ended
    EXPECT_EQ(target_of(request), sent);
  }
}

TEST(Urls, TheSameHoldsForALocation) {
  std::string second;
  auto server = std::make_unique<RawServer>([&second](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /\xc3\xa4\r\n\r\n");
    second = peer.request();
    peer.reply("x");
  });
  EXPECT_EQ(fetch(server->url(), {.redirect_max = 1}).body, "x");
  server.reset();
  EXPECT_EQ(target_of(second), "/%C3%A4");
}

TEST(Urls, AHostIsAscii) {
  const Fetched got = fetch("http://\xc3\xa4.test/");
  EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(got.error, WFT_ERR_URI_PARSE_FAILED);
}

TEST(Urls, ARedirectWithoutLocationIsTheResponse) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 302 Found\r\nContent-Length: 4\r\n\r\nbody");
  });
  const Fetched got = fetch(server.url(), {.redirect_max = 5});
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(got.status, "302");
  EXPECT_EQ(got.body, "body");
}

}  // namespace
}  // namespace client_test

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/TestServer.h"

// Requests that another recipient could read differently: each is refused, nothing that follows it
// on its connection is processed, and the server goes on serving others.

namespace server_test {
namespace {

using namespace std::string_literals;

struct Refused {
  const char* name;
  std::string request;
  int status;
};

void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.name;
}

std::string with(const std::string& fields, const std::string& body = "") {
  return "POST / HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n" + body;
}
std::string with_chunks(const std::string& body) {
  return with("Transfer-Encoding: chunked\r\n", body);
}

const std::vector<Refused>& refusals() {
  static const std::vector<Refused> all = {
      {"length_and_coding",
       with("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"coding_and_length",
       with("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "0\r\n\r\n"), 400},
      {"length_twice", with("Content-Length: 4\r\nContent-Length: 5\r\n", "body"), 400},
      {"length_twice_equal", with("Content-Length: 4\r\nContent-Length: 4\r\n", "body"), 400},
      {"length_list", with("Content-Length: 4, 4\r\n", "body"), 400},
      {"length_plus", with("Content-Length: +4\r\n", "body"), 400},
      {"length_minus", with("Content-Length: -4\r\n", "body"), 400},
      {"length_hex", with("Content-Length: 0x4\r\n", "body"), 400},
      {"length_space_inside", with("Content-Length: 4 4\r\n", "body"), 400},
      {"length_empty", with("Content-Length:\r\n", "body"), 400},
      {"length_overflow", with("Content-Length: 18446744073709551620\r\n", "body"), 400},
      {"coding_unknown", with("Transfer-Encoding: zork\r\n", "0\r\n\r\n"), 501},
      {"coding_gzip_chunked", with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501},
      {"coding_chunked_twice", with("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400},
      {"coding_chunked_gzip", with("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), 400},
      {"coding_two_fields",
       with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"coding_tab",
       with("Transfer-Encoding: \x0b"
            "chunked\r\n",
            "0\r\n\r\n"),
       400},
      {"coding_http10", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"chunk_size_empty", with_chunks("\r\nabc\r\n0\r\n\r\n"), 400},
      {"chunk_size_hex_prefix", with_chunks("0x3\r\nabc\r\n0\r\n\r\n"), 400},
      {"chunk_size_sign", with_chunks("+3\r\nabc\r\n0\r\n\r\n"), 400},
      {"chunk_size_overflow", with_chunks("10000000000000003\r\nabc\r\n0\r\n\r\n"), 400},
      {"chunk_size_space", with_chunks("3 \r\nabc\r\n0\r\n\r\n"), 400},
      {"chunk_bare_lf", with_chunks("3\nabc\r\n0\r\n\r\n"), 400},
      {"chunk_end_missing", with_chunks("3\r\nabcd\r\n0\r\n\r\n"), 400},
      {"chunk_end_bare_lf", with_chunks("3\r\nabc\n0\r\n\r\n"), 400},
      {"chunk_trailer_length", with_chunks("0\r\nContent-Length: 3\r\n\r\nabc"), 400},
      {"bare_lf_line", "GET / HTTP/1.1\nHost: x\n\n", 400},
      {"bare_lf_field", "GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", 400},
      {"bare_cr_field", "GET / HTTP/1.1\r\nHost: x\r\nX: y\rz\r\n\r\n", 400},
      {"fold", "GET / HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n\r\n", 400},
      {"fold_first", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400},
      {"space_before_colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
      {"tab_before_colon", with("Content-Length\t: 4\r\n", "body"), 400},
      {"nul_in_value", "GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n"s, 400},
      {"nul_in_name", "GET / HTTP/1.1\r\nHost: x\r\nX\0Y: a\r\n\r\n"s, 400},
      {"nul_in_target", "GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n"s, 400},
      {"control_in_value", "GET / HTTP/1.1\r\nHost: x\r\nX: a\x01\r\n\r\n", 400},
      {"empty_name", "GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400},
      {"no_colon", "GET / HTTP/1.1\r\nHost: x\r\nXY\r\n\r\n", 400},
      {"host_missing", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400},
      {"host_twice", "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
      {"host_bad", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400},
      {"version_bad", "GET / HTTP/1.x\r\nHost: x\r\n\r\n", 400},
      {"version_lower", "GET / http/1.1\r\nHost: x\r\n\r\n", 400},
      {"version_2", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"version_missing", "GET /\r\n\r\n", 400},
      {"two_spaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"space_in_target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"leading_space", " GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"method_unknown", "ZORK / HTTP/1.1\r\nHost: x\r\n\r\n", 501},
      {"method_empty", " / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"empty_lines", "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"tls_hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},
      {"noise", "\xff\xfe\xfd\xfc\r\n\r\n", 400},
      {"connect_with_body", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
       400},
  };
  return all;
}

class Framing : public testing::TestWithParam<Refused> {};

// Refused with the status, and closed; the request behind it is not processed.
void expect_refused(TestServer& server, RawClient& client, int status) {
  const auto got = client.reply();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, status);
  EXPECT_EQ(got->field("Connection"), "close");
  EXPECT_EQ(got->field("Content-Length"), "0");
  EXPECT_EQ(client.ending(), Ending::kClosed);
  client.close();
  EXPECT_TRUE(server.has_connections(0));
}

}  // namespace

TEST_P(Framing, IsRefused) {
  TestServer server;
  RawClient client = server.client();
  ASSERT_TRUE(client.send(GetParam().request + get("/smuggled")));
  expect_refused(server, client, GetParam().status);
  EXPECT_EQ(server.requests(), 0);
  EXPECT_TRUE(server.serves());
}

TEST_P(Framing, IsRefusedByteByByteBehindAnotherRequest) {
  TestServer server;
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  for (const char& byte : GetParam().request) {
    // Once it is refused, sending may fail.
    if (!client.send({&byte, 1})) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(10));  // so that it goes alone
  }
  client.send(get("/smuggled"));
  expect_refused(server, client, GetParam().status);
  EXPECT_EQ(server.requests(), 1);
  EXPECT_TRUE(server.serves());
}

INSTANTIATE_TEST_SUITE_P(Requests, Framing, testing::ValuesIn(refusals()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(FramingPipelined, RepliesBeforeTheBadRequestArrive) {
  TestServer server;
  RawClient client = server.client();
  client.send(get("/1") + get("/2") +
              with("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n") +
              get("/smuggled"));
  EXPECT_EQ(client.body(), "GET /1 ");
  EXPECT_EQ(client.body(), "GET /2 ");
  EXPECT_EQ(client.status(), 400);
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_EQ(server.requests(), 2);
}

TEST(FramingPipelined, ABodyIsNeverReadAsARequest) {
  TestServer server;
  RawClient client = server.client();
  client.send(post("/1", get("/inside")) + get("/2"));
  EXPECT_EQ(client.body(), "POST /1 " + get("/inside"));
  EXPECT_EQ(client.body(), "GET /2 ");
  EXPECT_EQ(server.requests(), 2);
}

TEST(FramingPipelined, ABodyOfGetIsReadAsItsBody) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" + get("/2"));
  EXPECT_EQ(client.body(), "GET /1 body");
  EXPECT_EQ(client.body(), "GET /2 ");
}

TEST(FramingPipelined, RandomBytesHarmNobody) {
  TestServer server;
  uint32_t random = 12345;
  for (int i = 0; i < 300; i++) {
    RawClient client = server.client();
    std::string noise = i % 2 == 0 ? "" : "POST / HTTP/1.1\r\nHost: x\r\n";
    for (int k = 0; k < 100; k++) {
      random = random * 1664525 + 1013904223;
      noise += static_cast<char>(random >> 24);
    }
    client.send(noise);
    client.half_close();
    EXPECT_TRUE(client.reply() || client.ended());
  }
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_TRUE(server.serves());
}

}  // namespace server_test

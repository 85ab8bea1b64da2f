#include <gtest/gtest.h>

#include <cctype>
#include <cerrno>
#include <string>
#include <vector>

#include "support/HttpFeeding.h"

// What is accepted and what is refused, as one table; every row is fed whole, byte by byte and
// cut in two at every place, and must come out the same.

using http_feeding::chunked;
using http_feeding::cut_everywhere;
using http_feeding::feed;
using http_feeding::Outcome;
using http_feeding::with_field;
using http_feeding::with_line;
using protocol::HttpRequest;

namespace {

constexpr int kAccepted = 0;
constexpr int kIncomplete = -1;

struct Case {
  const char* name;
  std::string bytes;
  int status;       // to refuse with, kAccepted or kIncomplete
  size_t rest = 0;  // bytes left for the next request
};

// For bytes with a NUL inside.
template <size_t N>
std::string raw(const char (&text)[N]) {
  return std::string(text, N - 1);
}

std::string post(std::string_view fields, std::string_view body = "") {
  return "POST / HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n" + std::string(body);
}

const std::vector<Case>& request_line_cases() {
  static const std::vector<Case> cases = {
      {"Plain", with_line("GET / HTTP/1.1"), kAccepted},
      {"Version10", "GET / HTTP/1.0\r\n\r\n", kAccepted},
      {"OptionsAsterisk", with_line("OPTIONS * HTTP/1.1"), kAccepted},
      {"AbsoluteForm", with_line("GET http://h:80/a?b HTTP/1.1"), kAccepted},
      {"ConnectAuthority", with_line("CONNECT h:443 HTTP/1.1"), kAccepted},
      {"Query", with_line("GET /a?b=c&d=%20;e HTTP/1.1"), kAccepted},
      {"MSearch", with_line("M-SEARCH / HTTP/1.1"), kAccepted},
      {"Nothing", "", kIncomplete},
      {"HalfLine", "GET / HTT", kIncomplete},
      {"NoEndYet", "GET / HTTP/1.1\r\nHost: h\r\n", kIncomplete},
      {"OneEmptyLineBefore", "\r\n" + with_line("GET / HTTP/1.1"), kAccepted},
      {"FourEmptyLinesBefore", "\r\n\r\n\r\n\r\n" + with_line("GET / HTTP/1.1"), kAccepted},
      {"FiveEmptyLinesBefore", "\r\n\r\n\r\n\r\n\r\n" + with_line("GET / HTTP/1.1"), 400},
      {"BareLfBefore", "\n" + with_line("GET / HTTP/1.1"), 400},
      {"BareCrBefore", "\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"SpaceBefore", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"BareLf", "GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
      {"BareLfEverywhere", "GET / HTTP/1.1\nHost: h\n\n", 400},
      {"DoubleCr", "GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", 400},
      {"LowerCaseVersion", with_line("GET / http/1.1"), 400},
      {"MixedCaseVersion", with_line("GET / HtTP/1.1"), 400},
      {"NoVersion", with_line("GET /"), 400},
      {"Version09", with_line("GET / HTTP/0.9"), 505},
      {"Version12", with_line("GET / HTTP/1.2"), 505},
      {"Version20", with_line("GET / HTTP/2.0"), 505},
      {"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"VersionTwoDigits", with_line("GET / HTTP/1.10"), 400},
      {"VersionWithoutMinor", with_line("GET / HTTP/1"), 400},
      {"VersionComma", with_line("GET / HTTP/1,1"), 400},
      {"VersionSigned", with_line("GET / HTTP/+1.1"), 400},
      {"OtherProtocol", with_line("GET / ICY/1.1"), 400},
      {"TabInLine", with_line("GET\t/ HTTP/1.1"), 400},
      {"TabBeforeVersion", with_line("GET /\tHTTP/1.1"), 400},
      {"TwoSpacesBeforeTarget", with_line("GET  / HTTP/1.1"), 400},
      {"TwoSpacesBeforeVersion", with_line("GET /  HTTP/1.1"), 400},
      {"SpaceAtEnd", with_line("GET / HTTP/1.1 "), 400},
      {"SpaceInTarget", with_line("GET /a b HTTP/1.1"), 400},
      {"CrInTarget", with_line("GET /\ra HTTP/1.1"), 400},
      {"NulInTarget", with_line(raw("GET /\0a HTTP/1.1")), 400},
      {"ControlInTarget", with_line("GET /\x01 HTTP/1.1"), 400},
      {"DelInTarget", with_line("GET /\x7f HTTP/1.1"), 400},
      {"HighByteInTarget", with_line("GET /\xc3\xa9 HTTP/1.1"), 400},
      {"FragmentInTarget", with_line("GET /a#b HTTP/1.1"), 400},
      {"RelativeTarget", with_line("GET a/b HTTP/1.1"), 400},
      {"AsteriskWithGet", with_line("GET * HTTP/1.1"), 400},
      {"AsteriskAndMore", with_line("OPTIONS *x HTTP/1.1"), 400},
      {"ConnectWithPath", with_line("CONNECT /x HTTP/1.1"), 400},
      {"NonTokenMethod", with_line("GE(T / HTTP/1.1"), 400},
      {"QuotedMethod", with_line("\"GET\" / HTTP/1.1"), 400},
      {"NulMethod", with_line(raw("G\0T / HTTP/1.1")), 400},
      {"UnknownMethod", with_line("FROB / HTTP/1.1"), 501},
      {"LowerCaseMethod", with_line("get / HTTP/1.1"), 501},
      {"LongerMethod", with_line("GETX / HTTP/1.1"), 501},
      {"RtspMethod", with_line("PLAY / HTTP/1.1"), 501},
      {"TlsHello", raw("\x16\x03\x01\x02\x00\x01\x00"), 400},
      {"Garbage", "garbage\r\n\r\n", 400},
  };
  return cases;
}

const std::vector<Case>& field_cases() {
  static const std::vector<Case> cases = {
      {"Token", with_field("X!#$%&'*+-.^_`|~9: v"), kAccepted},
      {"EmptyValue", with_field("X:"), kAccepted},
      {"BlankValue", with_field("X: \t "), kAccepted},
      {"NoSpaceAfterColon", with_field("X:v"), kAccepted},
      {"TabInValue", with_field("X: a\tb"), kAccepted},
      {"HighBytesInValue", with_field("X: \xc3\xa9"), kAccepted},
      {"SameNameTwice", with_field("X: a\r\nx: b"), kAccepted},
      {"SpaceBeforeColon", with_field("X : v"), 400},
      {"TabBeforeColon", with_field("X\t: v"), 400},
      {"SpaceInName", with_field("X Y: v"), 400},
      {"EmptyName", with_field(": v"), 400},
      {"NoColon", with_field("nonsense"), 400},
      {"Fold", with_field("X: a\r\n b"), 400},
      {"FoldByTab", with_field("X: a\r\n\tb"), 400},
      {"FoldedFirstField", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
      {"BlankLineOfSpaces", "GET / HTTP/1.1\r\nHost: h\r\n \r\n\r\n", 400},
      {"BareLfInField", with_field("X: a\nY: b"), 400},
      {"BareLfAtEnd", "GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
      {"BareCrInValue", with_field("X: a\rb"), 400},
      {"BareCrAsLineEnd", with_field("X: a\rY: b"), 400},
      {"CrCrLf", with_field("X: a\r"), 400},
      {"NulInValue", with_field(raw("X: a\0b")), 400},
      {"NulInName", with_field(raw("X\0: a")), 400},
      {"ControlInValue", with_field("X: a\x01"), 400},
      {"BackspaceInValue", with_field("X: a\b"), 400},
      {"EscapeInValue", with_field("X: \x1b[0m"), 400},
      {"DelInValue", with_field("X: a\x7f"), 400},
      {"ControlInName", with_field("X\x02: a"), 400},
      {"HighByteInName", with_field("X\xe9: a"), 400},
      {"QuoteInName", with_field("\"X\": a"), 400},
      {"NoHost", "GET / HTTP/1.1\r\n\r\n", 400},
      {"NoHostIn10", "GET / HTTP/1.0\r\nX: y\r\n\r\n", kAccepted},
      {"TwoHosts", with_field("Host: h"), 400},
      {"TwoHostsIn10", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"EmptyHost", "GET / HTTP/1.1\r\nHost:\r\n\r\n", kAccepted},
      {"HostWithPort", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", kAccepted},
      {"HostWithSpace", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"HostWithComma", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
      {"HostWithPath", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {"UnknownExpect", with_field("Expect: 200-ok"), 417},
      {"UnknownExpectIn10", "GET / HTTP/1.0\r\nExpect: 200-ok\r\n\r\n", kAccepted},
      {"Upgrade", with_field("Connection: upgrade\r\nUpgrade: websocket") + "rest", kAccepted, 4},
      {"UpgradeWithBody",
       post("Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n", "abrest"), kAccepted,
       4},
      {"Http2Settings", with_field("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c"),
       kAccepted},
      {"ConnectLeavesTheRest", with_line("CONNECT h:443 HTTP/1.1") + "tunnel", kAccepted, 6},
      {"ConnectionClose", with_field("Connection: close") + "rest", kAccepted, 4},
  };
  return cases;
}

const std::vector<Case>& length_cases() {
  static const std::vector<Case> cases = {
      {"Body", post("Content-Length: 3\r\n", "abcrest"), kAccepted, 4},
      {"BodyOfGet", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", kAccepted},
      {"BodyIncomplete", post("Content-Length: 3\r\n", "ab"), kIncomplete},
      {"Zero", post("Content-Length: 0\r\n", "rest"), kAccepted, 4},
      {"LeadingZeros", post("Content-Length: 003\r\n", "abc"), kAccepted},
      {"NoLength", post("", "rest"), kAccepted, 4},
      {"Twice", post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), 400},
      {"TwiceDifferent", post("Content-Length: 3\r\nContent-Length: 4\r\n", "abc"), 400},
      {"TwiceOtherCase", post("Content-Length: 3\r\ncontent-length: 3\r\n", "abc"), 400},
      {"List", post("Content-Length: 3, 3\r\n", "abc"), 400},
      {"Empty", post("Content-Length:\r\n"), 400},
      {"Plus", post("Content-Length: +5\r\n", "abcde"), 400},
      {"Minus", post("Content-Length: -5\r\n", "abcde"), 400},
      {"Hex", post("Content-Length: 0x5\r\n", "abcde"), 400},
      {"SpaceInside", post("Content-Length:  5 5\r\n", "abcde"), 400},
      {"TabInside", post("Content-Length: 5\t5\r\n", "abcde"), 400},
      {"SpacesAround", post("Content-Length:  5 \r\n", "abcde"), kAccepted},
      {"Fraction", post("Content-Length: 5.0\r\n", "abcde"), 400},
      {"Letters", post("Content-Length: five\r\n", "abcde"), 400},
      {"Underscore", post("Content-Length: 1_0\r\n", "abcdefghij"), 400},
      {"TwentyDigits", post("Content-Length: 18446744073709551621\r\n", "abcde"), 400},
      {"TwentyZerosAndFive", post("Content-Length: 000000000000000000005\r\n", "abcde"), 400},
      {"Huge", post("Content-Length: 9999999999999999999\r\n"), 413},
      {"OverLimit", post("Content-Length: 16777217\r\n"), 413},
      {"AtLimit", post("Content-Length: 16777216\r\n"), kIncomplete},
      {"SpaceBeforeColon", post("Content-Length : 3\r\n", "abc"), 400},
      {"ConnectWithLength", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 400},
      {"ConnectWithZeroLength", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
       kAccepted},
      {"WithCoding", post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"CodingFirst", post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"),
       400},
      {"ZeroWithCoding", post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), 400},
  };
  return cases;
}

const std::vector<Case>& coding_cases() {
  static const std::vector<Case> cases = {
      {"Chunked", post("Transfer-Encoding: chunked\r\n", "0\r\n\r\nrest"), kAccepted, 4},
      {"ChunkedAnyCase", post("Transfer-Encoding: ChunKed\r\n", "0\r\n\r\n"), kAccepted},
      {"In10", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"Twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"TwiceIdentity", post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"ChunkedChunked", post("Transfer-Encoding: chunked, chunked\r\n"), 400},
      {"ChunkedGzip", post("Transfer-Encoding: chunked, gzip\r\n"), 400},
      {"GzipChunked", post("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"Gzip", post("Transfer-Encoding: gzip\r\n"), 501},
      {"Identity", post("Transfer-Encoding: identity\r\n"), 501},
      {"Unknown", post("Transfer-Encoding: frob\r\n"), 501},
      {"XChunked", post("Transfer-Encoding: xchunked\r\n"), 501},
      {"ChunkedX", post("Transfer-Encoding: chunkedx\r\n"), 501},
      {"Parameter", post("Transfer-Encoding: chunked;q=1\r\n"), 400},
      {"Quoted", post("Transfer-Encoding: \"chunked\"\r\n"), 400},
      {"Empty", post("Transfer-Encoding:\r\n"), 400},
      {"Comma", post("Transfer-Encoding: ,chunked\r\n"), 400},
      {"TrailingComma", post("Transfer-Encoding: chunked,\r\n"), 400},
      {"VerticalTab", post("Transfer-Encoding: \vchunked\r\n"), 400},
      {"SpaceBeforeColon", post("Transfer-Encoding : chunked\r\n"), 400},
      {"Connect", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
  };
  return cases;
}

const std::vector<Case>& chunk_cases() {
  static const std::vector<Case> cases = {
      {"Two", chunked("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nrest"), kAccepted, 4},
      {"HexDigits", chunked("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), kAccepted},
      {"SixteenDigits", chunked("0000000000000003\r\nabc\r\n0\r\n\r\n"), kAccepted},
      {"ManyZeros", chunked("1\r\na\r\n0000\r\n\r\n"), kAccepted},
      {"Extension", chunked("3;a=b\r\nabc\r\n0;last\r\n\r\n"), kAccepted},
      {"QuotedExtension", chunked("3;a=\"b\"\r\nabc\r\n0\r\n\r\n"), kAccepted},
      {"Trailer", chunked("0\r\nX: y\r\nZ: w\r\n\r\nrest"), kAccepted, 4},
      {"DataWithLineEnds", chunked("4\r\n\n\r\n\r\r\n0\r\n\r\n"), kAccepted},
      {"Incomplete", chunked("3\r\nabc\r\n"), kIncomplete},
      {"LastLineMissing", chunked("0\r\n"), kIncomplete},
      {"SeventeenDigits", chunked("00000000000000003\r\nabc\r\n0\r\n\r\n"), 400},
      {"Overflow", chunked("10000000000000000\r\n"), 400},
      {"Huge", chunked("ffffffffffffffff\r\n"), 413},
      {"OverLimit", chunked("1000001\r\n"), 413},
      {"NoDigits", chunked("\r\nabc\r\n"), 400},
      {"Plus", chunked("+3\r\nabc\r\n0\r\n\r\n"), 400},
      {"Minus", chunked("-3\r\nabc\r\n0\r\n\r\n"), 400},
      {"HexPrefix", chunked("0x3\r\nabc\r\n0\r\n\r\n"), 400},
      {"NotHex", chunked("g\r\nabc\r\n0\r\n\r\n"), 400},
      {"SpaceBefore", chunked(" 3\r\nabc\r\n0\r\n\r\n"), 400},
      {"SpaceAfter", chunked("3 \r\nabc\r\n0\r\n\r\n"), 400},
      {"SpaceBeforeExtension", chunked("3 ;a\r\nabc\r\n0\r\n\r\n"), 400},
      {"TabAfter", chunked("3\t\r\nabc\r\n0\r\n\r\n"), 400},
      {"BareLfAfterSize", chunked("3\nabc\r\n0\r\n\r\n"), 400},
      {"BareCrAfterSize", chunked("3\rabc\r\n0\r\n\r\n"), 400},
      {"BareLfInExtension", chunked("3;a\nabc\r\n0\r\n\r\n"), 400},
      {"BareCrInExtension", chunked("3;a\rb\r\nabc\r\n0\r\n\r\n"), 400},
      {"ControlInExtension", chunked("3;a\x01\r\nabc\r\n0\r\n\r\n"), 400},
      {"NulInExtension", chunked(raw("3;a\0\r\nabc\r\n0\r\n\r\n")), 400},
      {"BareLfAfterData", chunked("3\r\nabc\n0\r\n\r\n"), 400},
      {"DataTooLong", chunked("3\r\nabcd\r\n0\r\n\r\n"), 400},
      {"DataTooShort", chunked("3\r\nab\r\n0\r\n\r\n"), 400},
      {"BareLfAfterLast", chunked("0\n\r\n"), 400},
      {"BareLfAtEnd", chunked("0\r\n\n"), 400},
      {"GarbageAtEnd", chunked("0\r\nrest\r\n\r\n"), 400},
      {"BareLfInTrailer", chunked("0\r\nX: y\n\r\n"), 400},
      {"FoldedTrailer", chunked("0\r\nX: y\r\n z\r\n\r\n"), 400},
      {"SpaceBeforeColonInTrailer", chunked("0\r\nX : y\r\n\r\n"), 400},
      {"NulInTrailer", chunked(raw("0\r\nX: \0\r\n\r\n")), 400},
      {"EmptyNameInTrailer", chunked("0\r\n: y\r\n\r\n"), 400},
      {"LengthInTrailer", chunked("0\r\nContent-Length: 3\r\n\r\n"), 400},
      {"CodingInTrailer", chunked("0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
      {"HostInTrailer", chunked("0\r\nHost: x\r\n\r\n"), 400},
  };
  return cases;
}

void expect_outcome(const Case& row, const Outcome& outcome) {
  if (row.status == kAccepted) {
    EXPECT_EQ(outcome.result, 1);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.consumed, row.bytes.size() - row.rest);
  } else if (row.status == kIncomplete) {
    EXPECT_EQ(outcome.result, 0);
    EXPECT_EQ(outcome.status, 0);
  } else {
    EXPECT_EQ(outcome.result, -1);
    EXPECT_EQ(outcome.status, row.status);
  }
}

void check(const std::vector<Case>& cases) {
  for (const Case& row : cases) {
    SCOPED_TRACE(row.name);
    Outcome whole = feed<HttpRequest>(row.bytes);
    expect_outcome(row, whole);
    EXPECT_EQ(feed<HttpRequest>(row.bytes, cut_everywhere(row.bytes.size())), whole);
    for (size_t cut = 0; cut <= row.bytes.size(); ++cut) {
      ASSERT_EQ(feed<HttpRequest>(row.bytes, {cut}), whole) << "cut at " << cut;
    }
  }
}

TEST(HttpFraming, RequestLines) {
  check(request_line_cases());
}
TEST(HttpFraming, Fields) {
  check(field_cases());
}
TEST(HttpFraming, ContentLength) {
  check(length_cases());
}
TEST(HttpFraming, TransferEncoding) {
  check(coding_cases());
}
TEST(HttpFraming, Chunks) {
  check(chunk_cases());
}

// What each single byte does in a place, against the grammar of RFC 9110 and 9112.
int status_with_byte(std::string_view before, unsigned byte, std::string_view after) {
  std::string bytes(before);
  bytes.push_back(static_cast<char>(byte));
  bytes += after;
  Outcome outcome = feed<HttpRequest>(bytes);
  EXPECT_EQ(feed<HttpRequest>(bytes, cut_everywhere(bytes.size())), outcome) << "byte " << byte;
  return outcome.result == 1 ? 0 : outcome.status;
}

bool is_tchar(unsigned byte) {
  return byte < 0x7f && byte > 0x20 &&
         std::string_view("\"(),/:;<=>?@[\\]{}").find(static_cast<char>(byte)) ==
             std::string_view::npos;
}

TEST(HttpFraming, EveryByteInAFieldName) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GET / HTTP/1.1\r\nHost: h\r\nX", byte, "Y: v\r\n\r\n");
    // A colon there ends the name, which is fine.
    EXPECT_EQ(status, is_tchar(byte) || byte == ':' ? 0 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteInAFieldValue) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GET / HTTP/1.1\r\nHost: h\r\nX: v", byte, "w\r\n\r\n");
    bool allowed = byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    EXPECT_EQ(status, allowed ? 0 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteInATarget) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GET /a", byte, "b HTTP/1.1\r\nHost: h\r\n\r\n");
    bool allowed = byte > 0x20 && byte < 0x7f && byte != '#';
    EXPECT_EQ(status, allowed ? 0 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteInAMethod) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GE", byte, "T / HTTP/1.1\r\nHost: h\r\n\r\n");
    // A space there ends the method, and the line has one part too many.
    EXPECT_EQ(status, is_tchar(byte) ? 501 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteAfterAChunkSize) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte(chunked("0"), byte, "\r\n\r\n");
    // After another digit than 0 the line end that follows is data, and too short.
    bool digit = std::isxdigit(static_cast<int>(byte)) != 0;
    EXPECT_EQ(status, digit ? status : 400) << "byte " << byte;
    if (byte == '0') {
      EXPECT_EQ(status, 0);
    }
  }
}

TEST(HttpFraming, NothingIsParsedAfterAnError) {
  HttpRequest request;
  std::string bad = with_field("X : y");
  size_t size = bad.size();
  ASSERT_EQ(request.append(bad.data(), &size), -1);
  std::string good = with_line("GET / HTTP/1.1");
  for (int i = 0; i < 3; ++i) {
    size = good.size();
    EXPECT_EQ(request.append(good.data(), &size), -1);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_EQ(request.refusal_status(), 400);
  }
  EXPECT_FALSE(request.is_complete());
  const void* body;
  EXPECT_FALSE(request.get_parsed_body(&body, &size));
}

}  // namespace

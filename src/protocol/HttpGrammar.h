#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// The character classes and small rules of HTTP/1.1 (RFC 9110, RFC 9112) and of URIs (RFC 3986)
// that llhttp leaves to its caller or takes more loosely than we do. Pure functions.
namespace protocol {

// token (RFC 9110, 5.6.2): methods, field names, transfer codings. Not empty.
bool is_token(std::string_view text);
bool is_token_char(char c);

// Text that may stand in a field value we send: neither CR, LF nor NUL.
bool is_safe_text(std::string_view text);

// No control characters but tab: what may stand in a line we receive.
bool is_printable_line(std::string_view text);

// A request target we send: not empty, neither white space nor controls.
bool is_sendable_target(std::string_view text);

// A request target we accept: bytes and form (origin, absolute, authority for CONNECT, asterisk
// for OPTIONS; RFC 9112, 3.2). The finer structure is the parser's.
bool is_acceptable_target(std::string_view method, std::string_view target);

// uri-host [":" port], or empty (RFC 9110, 7.2).
bool is_host_value(std::string_view value);

// "HTTP/" DIGIT "." DIGIT.
bool is_http_version(std::string_view version);

// Three digits from 100 on.
bool is_status_code(std::string_view code);

bool equal_ignoring_case(std::string_view a, std::string_view b);

// Without spaces and tabs at both ends.
std::string_view trim(std::string_view text);

// Digits only, at most 19 of them, so it cannot overflow (RFC 9110, 8.6 and strictness).
std::optional<uint64_t> parse_content_length(std::string_view text);

// Hexadecimal digits only, at most kMaxChunkSizeDigits of them.
std::optional<uint64_t> parse_chunk_size(std::string_view digits);

// *( ";" name [ "=" ( token / quoted-string ) ] ) (RFC 9112, 7.1.1), without the white space that
// its grammar tolerates. May be empty.
bool is_chunk_extensions(std::string_view text);

int hex_digit_value(char c);  // -1 when it is none

// Takes the next element off a comma-separated list, trimmed; false at the end. Empty elements
// are returned: whether they matter is the caller's decision.
class ListElements {
 public:
  explicit ListElements(std::string_view list) : rest_(list) {}
  bool next(std::string_view* element);

 private:
  std::string_view rest_;
  bool ended_ = false;
};

}  // namespace protocol

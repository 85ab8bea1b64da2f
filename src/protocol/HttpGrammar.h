#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// The character classes and small rules of HTTP/1.1 (RFC 9110, RFC 9112) and of URIs (RFC 3986)
// that llhttp leaves to its caller or takes more loosely than we do. Pure functions.
namespace protocol {

// A token (RFC 9110, 5.6.2): a method, a field name, a transfer coding. Not empty.
bool is_token(std::string_view text);
bool is_token_char(char c);

// Whether a field value that we send may contain the text: it has no CR, LF or NUL.
bool is_safe_text(std::string_view text);

// Whether a line that we receive may contain the text: it has no control character but tab.
bool is_printable_line(std::string_view text);

// Whether we send the request target: it is not empty, and has no white space or control character.
bool is_sendable_target(std::string_view text);

// Whether we accept the request target. Checks its bytes and its form (origin, absolute, authority
// for CONNECT, asterisk for OPTIONS; RFC 9112, 3.2), and that absolute-form has a host, which
// "http" and "https" require (RFC 9110, 4.2). The parser checks the rest.
bool is_acceptable_target(std::string_view method, std::string_view target);

// uri-host [":" port], or empty (RFC 9110, 7.2).
bool is_host_value(std::string_view value);

// The authority in a request target that is_acceptable_target() accepts, without user information.
// Empty if the target has none: it is in origin-form or an asterisk.
std::string_view authority_of(std::string_view target);

// The host in an authority, or in the value of a Host field: without the port, and an IPv6 address
// in its brackets. Empty if there is none.
std::string_view host_of(std::string_view authority);

// "HTTP/" DIGIT "." DIGIT.
bool is_http_version(std::string_view version);

// Three digits, 100 or more.
bool is_status_code(std::string_view code);

bool equal_ignoring_case(std::string_view a, std::string_view b);

// The text without spaces and tabs at both ends.
std::string_view trim(std::string_view text);

// Accepts digits only, at most 19 of them, so the value cannot overflow. This is stricter than
// RFC 9110, 8.6.
std::optional<uint64_t> parse_content_length(std::string_view text);

// Accepts hexadecimal digits only, at most kMaxChunkSizeDigits of them.
std::optional<uint64_t> parse_chunk_size(std::string_view digits);

// *( ";" name [ "=" ( token / quoted-string ) ] ) (RFC 9112, 7.1.1), without the white space that
// its grammar tolerates. May be empty.
bool is_chunk_extensions(std::string_view text);

int hex_digit_value(char c);  // -1 if `c` is not a hexadecimal digit

// Goes through a comma-separated list. next() sets `*element` to the next element, trimmed, and
// returns false at the end. It returns empty elements too: the caller decides whether they matter.
class ListElements {
 public:
  explicit ListElements(std::string_view list) : rest_(list) {}
  bool next(std::string_view* element);

 private:
  std::string_view rest_;
  bool ended_ = false;
};

}  // namespace protocol

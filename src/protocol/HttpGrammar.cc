#include "protocol/HttpGrammar.h"

#include <array>

#include "workflow/HttpLimits.h"

namespace protocol {

namespace {

enum CharClass : uint8_t {
  kToken = 1,      // tchar
  kControl = 2,    // CTL but HTAB
  kTarget = 4,     // visible ASCII but "#": a fragment never goes on the wire
  kHost = 8,       // unreserved, sub-delims, "%", ":", "[", "]"
  kHexDigit = 16,  // 0-9 a-f A-F
};

constexpr bool contains(std::string_view set, char c) {
  return set.find(c) != std::string_view::npos;
}

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (unsigned i = 0; i < 256; ++i) {
    char c = static_cast<char>(i);
    bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    unsigned bits = 0;
    if (alnum || (i < 128 && i != 0 && contains("!#$%&'*+-.^_`|~", c))) bits |= kToken;
    if ((i < 0x20 && c != '\t') || i == 0x7f) bits |= kControl;
    if (i > 0x20 && i < 0x7f && c != '#') bits |= kTarget;
    if (alnum || (i < 128 && i != 0 && contains("-._~!$&'()*+,;=%:[]", c))) bits |= kHost;
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
      bits |= kHexDigit;
    }
    classes[i] = static_cast<uint8_t>(bits);
  }
  return classes;
}

constexpr std::array<uint8_t, 256> kClasses = make_classes();

bool is_class(char c, CharClass wanted) {
  return (kClasses[static_cast<unsigned char>(c)] & wanted) != 0;
}

bool all_of_class(std::string_view text, CharClass wanted) {
  for (char c : text) {
    if (!is_class(c, wanted)) return false;
  }
  return true;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

// The length of the uri-host at the beginning (RFC 3986, 3.2.2: a name, or an address in brackets),
// which may be empty. npos if it is malformed. The rest of the text is empty or begins with a
// colon.
size_t host_length(std::string_view text) {
  constexpr size_t kNone = std::string_view::npos;
  size_t length = text.find(':');
  if (!text.empty() && text[0] == '[') {
    size_t close = text.find(']');
    if (close == kNone || close == 1 || text.find('[', 1) < close) return kNone;
    length = close + 1;
    if (length < text.size() && text[length] != ':') return kNone;
  } else if (text.substr(0, length).find_first_of("[]") != kNone) {
    return kNone;
  }
  length = length == kNone ? text.size() : length;
  return all_of_class(text.substr(0, length), kHost) ? length : kNone;
}

bool is_digits(std::string_view text) {
  for (char c : text) {
    if (!is_digit(c)) return false;
  }
  return true;
}

// uri-host ":" port, the port from 1 to 65535 (RFC 9110, 9.3.6).
bool is_authority_with_port(std::string_view text) {
  constexpr size_t kMaxPortDigits = 5;
  constexpr uint64_t kMaxPort = 65535;
  size_t host = host_length(text);
  if (host == 0 || host == std::string_view::npos || host == text.size()) return false;
  std::string_view digits = text.substr(host + 1);
  if (digits.size() > kMaxPortDigits) return false;
  auto port = parse_content_length(digits);
  return port && *port >= 1 && *port <= kMaxPort;
}

size_t token_length(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && is_token_char(text[length]))
    ++length;
  return length;
}

// The length of the quoted string at the beginning, with both quotes. 0 if there is none, or if it
// does not end.
size_t quoted_string_length(std::string_view text) {
  if (text.empty() || text[0] != '"') return 0;
  for (size_t i = 1; i < text.size() && !is_class(text[i], kControl); ++i) {
    if (text[i] == '"') return i + 1;
    if (text[i] == '\\' && (++i == text.size() || is_class(text[i], kControl))) return 0;
  }
  return 0;
}

}  // namespace

bool is_token_char(char c) {
  return is_class(c, kToken);
}

bool is_token(std::string_view text) {
  return !text.empty() && all_of_class(text, kToken);
}

bool is_safe_text(std::string_view text) {
  using namespace std::string_view_literals;
  return text.find_first_of("\r\n\0"sv) == std::string_view::npos;
}

bool is_printable_line(std::string_view text) {
  for (char c : text) {
    if (is_class(c, kControl)) return false;
  }
  return true;
}

bool is_sendable_target(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return false;
  }
  return !text.empty();
}

bool is_acceptable_target(std::string_view method, std::string_view target) {
  if (target.empty() || !all_of_class(target, kTarget)) return false;
  if (target[0] == '*') return target.size() == 1 && method == "OPTIONS";
  if (method == "CONNECT") return is_authority_with_port(target);
  if (target[0] == '/') return true;
  const std::string_view authority = authority_of(target);
  return is_host_value(authority) && !host_of(authority).empty();
}

bool is_host_value(std::string_view value) {
  size_t host = host_length(value);
  if (host == std::string_view::npos) return false;
  return host == value.size() || is_digits(value.substr(host + 1));
}

std::string_view authority_of(std::string_view target) {
  constexpr std::string_view kBeforeAuthority = "://";
  if (target[0] == '/' || target == "*") return {};
  const size_t scheme = target.find(kBeforeAuthority);
  if (scheme == std::string_view::npos) return target;  // that of CONNECT
  target.remove_prefix(scheme + kBeforeAuthority.size());
  target = target.substr(0, target.find_first_of("/?"));
  return target.substr(target.find('@') + 1);  // npos + 1 is 0
}

std::string_view host_of(std::string_view authority) {
  const size_t length = host_length(authority);
  return length == std::string_view::npos ? std::string_view() : authority.substr(0, length);
}

bool is_http_version(std::string_view version) {
  return version.size() == 8 && version.substr(0, 5) == "HTTP/" && is_digit(version[5]) &&
         version[6] == '.' && is_digit(version[7]);
}

bool is_status_code(std::string_view code) {
  return code.size() == 3 && code[0] != '0' && is_digit(code[0]) && is_digit(code[1]) &&
         is_digit(code[2]);
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && to_lower(a[i]) != to_lower(b[i])) return false;
  }
  return true;
}

std::string_view trim(std::string_view text) {
  auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> parse_content_length(std::string_view text) {
  constexpr size_t kMaxDigits = 19;
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

int hex_digit_value(char c) {
  if (!is_class(c, kHexDigit)) return -1;
  return is_digit(c) ? c - '0' : to_lower(c) - 'a' + 10;
}

std::optional<uint64_t> parse_chunk_size(std::string_view digits) {
  if (digits.empty() || digits.size() > kMaxChunkSizeDigits) return std::nullopt;
  uint64_t value = 0;
  for (char c : digits) {
    int digit = hex_digit_value(c);
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<unsigned>(digit);
  }
  return value;
}

bool is_chunk_extensions(std::string_view text) {
  while (!text.empty()) {
    if (text[0] != ';') return false;
    text.remove_prefix(1);
    size_t name = token_length(text);
    if (name == 0) return false;
    text.remove_prefix(name);
    if (text.empty() || text[0] != '=') continue;
    text.remove_prefix(1);
    size_t value = token_length(text);
    if (value == 0) value = quoted_string_length(text);
    if (value == 0) return false;
    text.remove_prefix(value);
  }
  return true;
}

bool ListElements::next(std::string_view* element) {
  if (ended_) return false;
  size_t comma = rest_.find(',');
  *element = trim(rest_.substr(0, comma));
  if (comma == std::string_view::npos) {
    ended_ = true;
  } else {
    rest_.remove_prefix(comma + 1);
  }
  return true;
}

}  // namespace protocol

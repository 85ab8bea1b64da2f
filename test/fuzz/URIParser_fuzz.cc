#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "Fuzzing.h"
#include "workflow/URIParser.h"

// Whatever text is taken for a URI: it is refused without a trace, or its components put together
// again are the same URI. Queries and paths come apart the same way wherever they are joined.

using fuzzing::Cuts;
using fuzzing::require;

namespace {

constexpr char* ParsedURI::*kComponents[] = {
    &ParsedURI::scheme, &ParsedURI::userinfo, &ParsedURI::host,    &ParsedURI::port,
    &ParsedURI::path,   &ParsedURI::query,    &ParsedURI::fragment};

bool same(const ParsedURI& a, const ParsedURI& b) {
  for (auto component : kComponents) {
    const char* const left = a.*component;
    const char* const right = b.*component;
    if ((left == nullptr) != (right == nullptr)) return false;
    if (left != nullptr && std::strcmp(left, right) != 0) return false;
  }
  return a.state == b.state && a.error == b.error;
}

// RFC 3986, 5.3.
std::string join(const ParsedURI& uri) {
  std::string text;
  if (uri.scheme != nullptr) text.append(uri.scheme).append(":");
  if (uri.host != nullptr) {
    text += "//";
    if (uri.userinfo != nullptr) text.append(uri.userinfo).append("@");
    const bool literal = std::strchr(uri.host, ':') != nullptr;
    text.append(literal ? "[" : "").append(uri.host).append(literal ? "]" : "");
    if (uri.port != nullptr) text.append(":").append(uri.port);
  }
  if (uri.path != nullptr) text += uri.path;
  if (uri.query != nullptr) text.append("?").append(uri.query);
  if (uri.fragment != nullptr) text.append("#").append(uri.fragment);
  return text;
}

void check_clean(const char* text, std::string_view forbidden) {
  if (text == nullptr) return;
  for (const char* c = text; *c != '\0'; ++c) {
    require(static_cast<unsigned char>(*c) > 0x20 && static_cast<unsigned char>(*c) < 0x7f);
    require(forbidden.find(*c) == std::string_view::npos);
  }
}

void check_parse(const std::string& text) {
  ParsedURI uri;
  errno = 0;
  const int result = URIParser::parse(text, uri);
  if (text.find('\0') == std::string::npos) {
    ParsedURI other;
    require(URIParser::parse(text.c_str(), other) == result && same(uri, other));
  } else {
    require(result == -1);
  }
  ParsedURI copy(uri);
  require(same(copy, uri));
  ParsedURI moved(std::move(copy));
  require(same(moved, uri) && copy.host == nullptr && copy.path == nullptr);
  if (result != 0) {
    require(result == -1 && uri.state == URI_STATE_INVALID && uri.error == EINVAL);
    require(errno == EINVAL);
    for (auto component : kComponents)
      require(uri.*component == nullptr);
    return;
  }
  require(uri.state == URI_STATE_SUCCESS && uri.error == 0);
  check_clean(uri.scheme, ":/?#[]@");
  check_clean(uri.userinfo, "/?#[]@");
  check_clean(uri.host, "/?#[]@");
  check_clean(uri.port, ":/?#[]@");
  check_clean(uri.path, "?#");
  check_clean(uri.query, "#");
  check_clean(uri.fragment, "#");
  for (const char* c = uri.port; c != nullptr && *c != '\0'; ++c)
    require(*c >= '0' && *c <= '9');
  ParsedURI again;
  require(URIParser::parse(join(uri), again) == 0);
  require(same(again, uri));
}

// Behind the authority, anything but blanks and controls is accepted.
void check_tail(const std::string& tail) {
  bool allowed = true;
  for (char c : tail)
    allowed = allowed && static_cast<unsigned char>(c) > 0x20 && c != 0x7f;
  for (const char* delimiter : {"/", "?", "#"}) {
    ParsedURI uri;
    require(URIParser::parse("http://h" + std::string(delimiter) + tail, uri) ==
            (allowed ? 0 : -1));
    if (allowed) require(std::strcmp(uri.host, "h") == 0);
  }
}

void check_query(const std::string& query, const Cuts& cuts) {
  const auto strict = URIParser::split_query_strict(query);
  const auto first = URIParser::split_query(query);
  require(first.size() == strict.size());
  std::string joined;
  for (const auto& [name, values] : strict) {
    require(!name.empty() && name.find_first_of("&=") == std::string::npos);
    require(!values.empty() && first.at(name) == values.front());
    for (const std::string& value : values) {
      require(value.find('&') == std::string::npos);
      joined.append("&").append(name).append("=").append(value);
    }
  }
  require(URIParser::split_query_strict(joined) == strict);
  for (size_t cut : cuts) {
    auto left = URIParser::split_query_strict(query.substr(0, cut));
    for (auto& [name, values] : URIParser::split_query_strict(query.substr(cut)))
      left[name].insert(left[name].end(), values.begin(), values.end());
    std::string halves(query);
    require(URIParser::split_query_strict(halves.insert(cut, "&")) == left);
  }
}

void check_path(const std::string& path, const Cuts& cuts) {
  const std::vector<std::string> segments = URIParser::split_path(path);
  std::string joined;
  for (const std::string& segment : segments) {
    require(!segment.empty() && segment.find('/') == std::string::npos);
    joined.append("/").append(segment);
  }
  require(URIParser::split_path(joined) == segments);
  for (size_t cut : cuts) {
    auto left = URIParser::split_path(path.substr(0, cut));
    for (std::string& segment : URIParser::split_path(path.substr(cut)))
      left.push_back(std::move(segment));
    std::string halves(path);
    require(URIParser::split_path(halves.insert(cut, "/")) == left);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_parse(text);
  check_tail(text);
  Cuts cuts = fuzzing::random_cuts(text, 30);
  if (cuts.size() > 3) cuts.resize(3);
  for (size_t cut = 0; fuzzing::cut_everywhere && cut <= size; ++cut)
    cuts.push_back(cut);
  check_query(text, cuts);
  check_path(text, cuts);
  return 0;
}

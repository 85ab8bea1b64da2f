#include "workflow/URIParser.h"

#include <uriparser/Uri.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "workflow/StringUtil.h"

namespace {

constexpr char* ParsedURI::*kComponents[] = {
    &ParsedURI::scheme, &ParsedURI::userinfo, &ParsedURI::host,    &ParsedURI::port,
    &ParsedURI::path,   &ParsedURI::query,    &ParsedURI::fragment};

constexpr size_t kNone = std::string_view::npos;

// Where the authority ends and path, query and fragment begin.
size_t end_of_authority(std::string_view uri) {
  constexpr std::string_view kDelimiters = "/?#";
  size_t first = uri.find_first_of(kDelimiters);
  if (first == kNone || uri.substr(first, 2) != "//") return first == kNone ? uri.size() : first;
  size_t end = uri.find_first_of(kDelimiters, first + 2);
  return end == kNone ? uri.size() : end;
}

bool has_blank_or_control(std::string_view uri) {
  for (char c : uri) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return true;
  }
  return false;
}

// Percent-encodes every character that RFC 3986 allows nowhere after the authority, also a "#"
// inside the fragment and a "%" that begins no escape.
std::string escape_tail(std::string_view tail) {
  constexpr std::string_view kAllowed = "-._~!$&'()*+,;=:@/?";
  constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
  std::string escaped;
  bool in_fragment = false;
  for (size_t i = 0; i < tail.size(); ++i) {
    char c = tail[i];
    bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool escape = c == '%' && tail.substr(i + 1, 2).size() == 2 &&
                  kHexDigits.find(tail[i + 1]) != kNone && kHexDigits.find(tail[i + 2]) != kNone;
    bool fragment = c == '#' && !in_fragment;
    if (alnum || escape || fragment || kAllowed.find(c) != kNone) {
      escaped.push_back(c);
    } else {
      escaped += StringUtil::url_encode_component(std::string(1, c));
    }
    in_fragment = in_fragment || fragment;
  }
  return escaped;
}

// False when memory is exhausted.
bool copy_text(std::string_view text, char** copy) {
  *copy = strndup(text.data(), text.size());
  return *copy != nullptr;
}

// An absent component stays null, and so does an empty one unless it may be empty.
bool copy_range(const UriTextRangeA& range, bool may_be_empty, char** copy) {
  if (range.first == nullptr || (range.first == range.afterLast && !may_be_empty)) return true;
  return copy_text({range.first, static_cast<size_t>(range.afterLast - range.first)}, copy);
}

// The parser gives the path as segments without their slashes.
bool copy_path(const UriUriA& parsed, char** copy) {
  bool rooted = parsed.absolutePath != 0 || parsed.hostText.first != nullptr;
  if (parsed.pathHead == nullptr && parsed.absolutePath == 0) return true;
  std::string path;
  for (const UriPathSegmentA* segment = parsed.pathHead; segment != nullptr;
       segment = segment->next) {
    if (rooted || segment != parsed.pathHead) path.push_back('/');
    path.append(segment->text.first, segment->text.afterLast);
  }
  return copy_text(path.empty() ? "/" : path, copy);
}

bool copy_components(const UriUriA& parsed, ParsedURI& uri) {
  return copy_range(parsed.scheme, false, &uri.scheme) &&
         copy_range(parsed.userInfo, true, &uri.userinfo) &&
         copy_range(parsed.hostText, true, &uri.host) &&
         copy_range(parsed.portText, false, &uri.port) && copy_path(parsed, &uri.path) &&
         copy_range(parsed.query, true, &uri.query) &&
         copy_range(parsed.fragment, true, &uri.fragment);
}

int fail(ParsedURI& uri, int state, int error) {
  uri.clear();
  uri.state = state;
  uri.error = error;
  errno = error;
  return -1;
}

}  // namespace

void ParsedURI::clear() {
  for (auto component : kComponents) {
    std::free(this->*component);
    this->*component = nullptr;
  }
  state = URI_STATE_INIT;
  error = 0;
}

void ParsedURI::copy(const ParsedURI& uri) {
  bool failed = false;
  state = uri.state;
  error = uri.error;
  for (auto component : kComponents) {
    const char* text = uri.*component;
    this->*component = text == nullptr ? nullptr : strdup(text);
    failed = failed || (text != nullptr && this->*component == nullptr);
  }
  if (failed) fail(*this, URI_STATE_ERROR, ENOMEM);
}

int URIParser::parse(const char* str, ParsedURI& uri) {
  const std::string_view text(str ? str : "");
  uri.clear();
  if (text.empty() || has_blank_or_control(text)) return fail(uri, URI_STATE_INVALID, EINVAL);
  try {
    size_t authority_end = end_of_authority(text);
    std::string escaped(text.substr(0, authority_end));
    escaped += escape_tail(text.substr(authority_end));
    UriUriA parsed;
    int result =
        uriParseSingleUriExA(&parsed, escaped.data(), escaped.data() + escaped.size(), nullptr);
    if (result == URI_ERROR_MALLOC) return fail(uri, URI_STATE_ERROR, ENOMEM);
    if (result != URI_SUCCESS) return fail(uri, URI_STATE_INVALID, EINVAL);
    // No address of a future version (RFC 3986, 3.2.2) exists. Without its brackets it would look
    // like a name.
    bool future = parsed.hostData.ipFuture.first != nullptr;
    bool copied = future || copy_components(parsed, uri);
    uriFreeUriMembersA(&parsed);
    if (future) return fail(uri, URI_STATE_INVALID, EINVAL);
    if (!copied) return fail(uri, URI_STATE_ERROR, ENOMEM);
  } catch (const std::bad_alloc&) {
    return fail(uri, URI_STATE_ERROR, ENOMEM);
  }
  uri.state = URI_STATE_SUCCESS;
  return 0;
}

int URIParser::parse(const std::string& str, ParsedURI& uri) {
  // A NUL inside would hide the text after it.
  if (str.find('\0') != std::string::npos) return fail(uri, URI_STATE_INVALID, EINVAL);
  return parse(str.c_str(), uri);
}

namespace {

std::string text_of(const ParsedURI& uri) {
  std::string text = std::string(uri.scheme) + ":";
  if (uri.host != nullptr) {
    text += "//";
    if (uri.userinfo != nullptr) text.append(uri.userinfo).append("@");
    bool is_ipv6 = std::strchr(uri.host, ':') != nullptr;
    text.append(is_ipv6 ? "[" : "").append(uri.host).append(is_ipv6 ? "]" : "");
    if (uri.port != nullptr) text.append(":").append(uri.port);
  }
  if (uri.path != nullptr) text += uri.path;
  if (uri.query != nullptr) text.append("?").append(uri.query);
  return text;
}

// Parsed by the library, and freed.
struct OwnUri {
  UriUriA uri = {};
  ~OwnUri() { uriFreeUriMembersA(&uri); }
  bool parse(const std::string& text) {
    return uriParseSingleUriA(&uri, text.c_str(), nullptr) == 0;
  }
};

}  // namespace

int URIParser::resolve(const ParsedURI& base, const std::string& reference, ParsedURI& uri) {
  if (base.state != URI_STATE_SUCCESS || base.scheme == nullptr ||
      has_blank_or_control(reference)) {
    return fail(uri, URI_STATE_INVALID, EINVAL);
  }
  try {
    const size_t authority_end = end_of_authority(reference);
    const std::string escaped =
        reference.substr(0, authority_end) + escape_tail(reference.substr(authority_end));
    const std::string base_text = text_of(base);
    OwnUri from;
    OwnUri relative;
    OwnUri absolute;
    if (!from.parse(base_text) || !relative.parse(escaped) ||
        uriAddBaseUriA(&absolute.uri, &relative.uri, &from.uri) != URI_SUCCESS) {
      return fail(uri, URI_STATE_INVALID, EINVAL);
    }
    int size = 0;
    uriToStringCharsRequiredA(&absolute.uri, &size);
    std::string text(static_cast<size_t>(size) + 1, '\0');
    uriToStringA(text.data(), &absolute.uri, size + 1, &size);
    text.resize(static_cast<size_t>(size) - 1);
    return parse(text, uri);
  } catch (const std::bad_alloc&) {
    return fail(uri, URI_STATE_ERROR, ENOMEM);
  }
}

namespace {

template <class Take>
void for_each_pair(const std::string& query, Take take) {
  for (const std::string& pair : StringUtil::split_filter_empty(query, '&')) {
    size_t equals = pair.find('=');
    std::string name = pair.substr(0, equals);
    if (name.empty()) continue;
    take(std::move(name), equals == std::string::npos ? std::string() : pair.substr(equals + 1));
  }
}

}  // namespace

std::map<std::string, std::string> URIParser::split_query(const std::string& query) {
  std::map<std::string, std::string> pairs;
  for_each_pair(query, [&pairs](std::string name, std::string value) {
    pairs.emplace(std::move(name), std::move(value));
  });
  return pairs;
}

std::map<std::string, std::vector<std::string>> URIParser::split_query_strict(
    const std::string& query) {
  std::map<std::string, std::vector<std::string>> pairs;
  for_each_pair(query, [&pairs](std::string name, std::string value) {
    pairs[std::move(name)].push_back(std::move(value));
  });
  return pairs;
}

std::vector<std::string> URIParser::split_path(const std::string& path) {
  return StringUtil::split_filter_empty(path, '/');
}

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

enum {
  URI_STATE_INIT = 0,
  URI_STATE_SUCCESS = 1,
  URI_STATE_INVALID = 2,  // not a URI
  URI_STATE_ERROR = 3     // out of memory; `error` is errno
};

// The components of a URI (RFC 3986, 3), not decoded. A component that is absent is null. An IPv6
// host is stored without its brackets. The strings are allocated with malloc() and owned by this
// object.
class ParsedURI {
 public:
  char *scheme = nullptr;
  char *userinfo = nullptr;
  char *host = nullptr;
  char *port = nullptr;
  char *path = nullptr;
  char *query = nullptr;
  char *fragment = nullptr;
  int state = URI_STATE_INIT;
  int error = 0;

  ParsedURI() = default;
  ParsedURI(const ParsedURI &uri) { copy(uri); }
  ParsedURI(ParsedURI &&uri) noexcept { swap(uri); }
  ParsedURI &operator=(const ParsedURI &uri) {
    if (this != &uri) {
      clear();
      copy(uri);
    }
    return *this;
  }
  ParsedURI &operator=(ParsedURI &&uri) noexcept {
    if (this != &uri) {
      clear();
      swap(uri);
    }
    return *this;
  }
  ~ParsedURI() { clear(); }

  // Resets the object to the state of a new one.
  void clear();

 private:
  void copy(const ParsedURI &uri);
  void swap(ParsedURI &uri) noexcept {
    std::swap(scheme, uri.scheme);
    std::swap(userinfo, uri.userinfo);
    std::swap(host, uri.host);
    std::swap(port, uri.port);
    std::swap(path, uri.path);
    std::swap(query, uri.query);
    std::swap(fragment, uri.fragment);
    std::swap(state, uri.state);
    std::swap(error, uri.error);
  }
};

// Stateless. Any thread may call these functions.
class URIParser {
 public:
  // Returns 0 and fills `uri`. On failure returns -1, sets the state and error of `uri`, and leaves
  // all its components null. Characters of path, query and fragment that RFC 3986 does not allow
  // are percent-encoded, as browsers do. Spaces and control characters are refused anywhere, and so
  // is a text that is empty or null.
  static int parse(const char *str, ParsedURI &uri);
  static int parse(const std::string &str, ParsedURI &uri);

  // Resolves `reference`, absolute or relative, against the URI `base` of a document (RFC 3986, 5),
  // and stores the result in `uri`. Returns as parse() does. `base` and `uri` may be the same
  // object.
  static int resolve(const ParsedURI &base, const std::string &reference, ParsedURI &uri);

  // Returns the name=value pairs of a query, not decoded. Pairs without a name are left out; a pair
  // without "=" has an empty value. If a name is repeated, the first form keeps its first value.
  static std::map<std::string, std::string> split_query(const std::string &query);
  static std::map<std::string, std::vector<std::string>> split_query_strict(
      const std::string &query);

  // Returns the segments of a path that are not empty, not decoded.
  static std::vector<std::string> split_path(const std::string &path);
};

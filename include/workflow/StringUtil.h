#pragma once

#include <stddef.h>

#include <string>
#include <vector>

// Small text functions. They are stateless, and any thread may call them.
class StringUtil {
 public:
  // Decodes in place "%XX" and, as in forms and queries, "+" to a space. A "%" that is not followed
  // by two hexadecimal digits stays. The second form returns the new length.
  static void url_decode(std::string &str);
  static size_t url_decode(char *str, size_t len);

  // Encodes the characters that are not allowed in a URL: all but the reserved and unreserved
  // characters of RFC 3986 and "%".
  static std::string url_encode(const std::string &str);
  // Encodes all but the unreserved characters. For a single name, value or path segment.
  static std::string url_encode_component(const std::string &str);

  // Returns the parts between separators; n separators give n + 1 parts. The second form leaves out
  // the empty parts.
  static std::vector<std::string> split(const std::string &str, char sep);
  static std::vector<std::string> split_filter_empty(const std::string &str, char sep);

  // Returns the text without white space (space, \t, \r, \n, \v, \f) at both ends.
  static std::string strip(const std::string &str);

  static bool start_with(const std::string &str, const std::string &prefix);
};

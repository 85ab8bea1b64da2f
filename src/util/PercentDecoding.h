#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace workflow {

// Returns the value of a hexadecimal digit, or -1.
inline int hex_value(char c) {
  return c >= '0' && c <= '9'                     ? c - '0'
         : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                  : -1;
}

// Decodes as in RFC 3986, 2.1: a "+" stays a "+".
inline std::string percent_decoded(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
        hex_value(text[i + 2]) >= 0) {
      plain += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace workflow

#include "workflow/StringUtil.h"

#include <string_view>

#include "util/PercentDecoding.h"

using workflow::hex_value;

namespace {

bool is_unreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

std::string encode_all_but(const std::string& str, std::string_view kept) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(str.size());
  for (char c : str) {
    if (is_unreserved(c) || kept.find(c) != std::string_view::npos) {
      encoded.push_back(c);
    } else {
      unsigned byte = static_cast<unsigned char>(c);
      encoded.push_back('%');
      encoded.push_back(kDigits[byte >> 4]);
      encoded.push_back(kDigits[byte & 15]);
    }
  }
  return encoded;
}

template <class Take>
void for_each_part(const std::string& str, char sep, Take take) {
  size_t begin = 0;
  for (size_t end; (end = str.find(sep, begin)) != std::string::npos; begin = end + 1) {
    take(str.substr(begin, end - begin));
  }
  take(str.substr(begin));
}

}  // namespace

size_t StringUtil::url_decode(char* str, size_t len) {
  size_t out = 0;
  for (size_t in = 0; in < len; ++in) {
    char c = str[in];
    if (c == '+') {
      c = ' ';
    } else if (c == '%' && len - in > 2) {
      int high = hex_value(str[in + 1]);
      int low = hex_value(str[in + 2]);
      if (high >= 0 && low >= 0) {
        c = static_cast<char>(high << 4 | low);
        in += 2;
      }
    }
    str[out++] = c;
  }
  return out;
}

void StringUtil::url_decode(std::string& str) {
  str.resize(url_decode(str.data(), str.size()));
}

std::string StringUtil::url_encode(const std::string& str) {
  return encode_all_but(str, ":/?#[]@!$&'()*+,;=%");
}

std::string StringUtil::url_encode_component(const std::string& str) {
  return encode_all_but(str, "");
}

std::vector<std::string> StringUtil::split(const std::string& str, char sep) {
  std::vector<std::string> parts;
  for_each_part(str, sep, [&parts](std::string part) { parts.push_back(std::move(part)); });
  return parts;
}

std::vector<std::string> StringUtil::split_filter_empty(const std::string& str, char sep) {
  std::vector<std::string> parts;
  for_each_part(str, sep, [&parts](std::string part) {
    if (!part.empty()) parts.push_back(std::move(part));
  });
  return parts;
}

std::string StringUtil::strip(const std::string& str) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  size_t begin = str.find_first_not_of(kBlank);
  if (begin == std::string::npos) return std::string();
  return str.substr(begin, str.find_last_not_of(kBlank) - begin + 1);
}

bool StringUtil::start_with(const std::string& str, const std::string& prefix) {
  return str.compare(0, prefix.size(), prefix) == 0;
}

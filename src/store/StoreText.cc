#include "store/StoreText.h"

#include <charconv>
#include <cstddef>

namespace workflow {

std::string StoreText::cursor_at(const WFStoreInfo& info) {
  return std::to_string(info.timer) + ":" + info.name;
}

bool StoreText::read_cursor(const std::string& cursor, ListRequest& list) {
  const size_t colon = cursor.find(':');
  if (colon == std::string::npos) return cursor.empty();
  const char* const number_end = cursor.data() + colon;
  const auto [end, error] = std::from_chars(cursor.data(), number_end, list.after_timer);
  list.after_name = cursor.substr(colon + 1);
  return error == std::errc() && end == number_end;
}

std::string StoreText::quoted(std::string_view text) {
  constexpr size_t kMax = 40;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text.substr(0, kMax)) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  return result + (text.size() > kMax ? "\"..." : "\"");
}

std::string StoreText::label_value(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      result += '\\';
    }
    result += c == '\n' ? "\\n" : std::string(1, c);
  }
  return result;
}

}  // namespace workflow

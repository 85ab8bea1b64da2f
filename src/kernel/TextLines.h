#pragma once

#include <string_view>

namespace workflow {

// Splits the text of configuration files. Each call removes a piece from the front of the text.

// Returns the next line, without its line break.
inline std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  return line;
}

// The next word of a line; empty when there is none. `blanks` are the characters that separate
// words.
inline std::string_view take_word(std::string_view& line, std::string_view blanks = " \t\r\f\v") {
  const size_t begin = line.find_first_not_of(blanks);
  if (begin == line.npos) {
    line = {};
    return {};
  }
  const size_t end = line.find_first_of(blanks, begin);
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end == line.npos ? line.size() : end);
  return word;
}

}  // namespace workflow

#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace test_support {

// Returns the content of a file, or nothing if it cannot be read. An iterator over the bytes would
// be compiled with the test, without optimisation, and take far longer than what the library of C++
// does here.
inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Returns how often `part` is in `text`.
inline size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) {
    count++;
  }
  return count;
}

// Returns letters in which no part is soon repeated, so that a piece that is lost or doubled is
// seen.
inline std::string pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; i++) {
    text[i] = static_cast<char>('a' + (i * 31 + i / 977) % 26);
  }
  return text;
}

// Returns a chunk of an HTTP body that comes in chunks.
inline std::string chunk(const std::string& data) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  return size + data + "\r\n";
}

}  // namespace test_support

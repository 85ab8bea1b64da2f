#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

// The parameters of a request, "a=1&b=two%20words", with the first thing that is wrong about them.
// Nothing is guessed: an unknown parameter may be a misspelt one.
class Query {
 public:
  // `known`: the parameters that there may be, each at most once.
  Query(std::string_view text, std::initializer_list<std::string_view> known);

  // Absent, or text in UTF-8 that is not empty.
  std::optional<std::string> text(const std::string& key);
  // Absent, or a whole number from 0 to `max`.
  std::optional<uint64_t> number(const std::string& key, uint64_t max);
  // These need the key to be there. If it is not, that is reported as wrong, and the value means
  // nothing.
  std::string required_text(const std::string& key);
  uint64_t required_number(const std::string& key, uint64_t max);

  // What is wrong, for people to read; empty if nothing is.
  const std::string& error() const { return error_; }

 private:
  void add(std::string_view pair, std::initializer_list<std::string_view> known);
  std::optional<std::string> decode(std::string_view encoded);
  void complain(const std::string& error);

  std::map<std::string, std::string> values_;
  std::string error_;
};

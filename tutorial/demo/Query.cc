#include "Query.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "workflow/StringUtil.h"

namespace {

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

}  // namespace

Query::Query(std::string_view text, std::initializer_list<std::string_view> known) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    add(text.substr(0, end), known);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void Query::add(std::string_view pair, std::initializer_list<std::string_view> known) {
  if (pair.empty()) {
    return;
  }
  const size_t equals = std::min(pair.find('='), pair.size());
  const auto key = decode(pair.substr(0, equals));
  const auto value = decode(pair.substr(std::min(equals + 1, pair.size())));
  if (!key || !value) {
    return;
  }
  if (std::find(known.begin(), known.end(), *key) == known.end()) {
    complain("unknown parameter " + in_quotes(*key));
  } else if (!values_.emplace(*key, *value).second) {
    complain("parameter " + in_quotes(*key) + " is given more than once");
  }
}

std::optional<std::string> Query::decode(std::string_view encoded) {
  for (size_t i = encoded.find('%'); i < encoded.size(); i = encoded.find('%', i + 1)) {
    if (i + 2 >= encoded.size() || !is_hex(encoded[i + 1]) || !is_hex(encoded[i + 2])) {
      complain("bad percent-encoding in " + in_quotes(encoded));
      return std::nullopt;
    }
  }
  std::string decoded(encoded);
  StringUtil::url_decode(decoded);
  return decoded;
}

std::optional<std::string> Query::text(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return std::nullopt;
  }
  if (found->second.empty()) {
    complain("parameter " + in_quotes(key) + " is empty");
  } else if (!is_utf8(found->second)) {
    complain("parameter " + in_quotes(key) + " is not UTF-8");
  }
  return found->second;
}

std::optional<uint64_t> Query::number(const std::string& key, uint64_t max) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return std::nullopt;
  }
  const std::string& digits = found->second;
  const char* const digits_end = digits.data() + digits.size();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits_end, value);
  if (error != std::errc() || end != digits_end || value > max) {
    complain("parameter " + in_quotes(key) + " must be a whole number from 0 to " +
             std::to_string(max) + ", not " + in_quotes(digits));
  }
  return value;
}

std::string Query::required_text(const std::string& key) {
  const auto value = text(key);
  if (!value) {
    complain("parameter " + in_quotes(key) + " is missing");
  }
  return value.value_or("");
}

uint64_t Query::required_number(const std::string& key, uint64_t max) {
  const auto value = number(key, max);
  if (!value) {
    complain("parameter " + in_quotes(key) + " is missing");
  }
  return value.value_or(0);
}

void Query::complain(const std::string& error) {
  if (error_.empty()) {
    error_ = error;
  }
}

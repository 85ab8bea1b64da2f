#include "store/RedisWire.h"

#include <charconv>
#include <cstdint>

namespace workflow {

namespace {

constexpr std::string_view kEnd = "\r\n";

void append_number(std::string* wire, char mark, int64_t number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  wire->push_back(mark);
  wire->append(digits, static_cast<size_t>(end - digits)).append(kEnd);
}

void append_bulk(std::string* wire, std::string_view text) {
  append_number(wire, '$', static_cast<int64_t>(text.size()));
  wire->append(text).append(kEnd);
}

// A line break would end the line.
void append_line(std::string* wire, char mark, std::string_view text) {
  wire->push_back(mark);
  for (const char c : text) {
    wire->push_back(c == '\r' || c == '\n' ? ' ' : c);
  }
  wire->append(kEnd);
}

}  // namespace

void append_command(std::string* wire, const std::string& command,
                    const std::vector<std::string>& params) {
  size_t size = wire->size() + command.size() + 32;
  for (const std::string& param : params) {
    size += param.size() + 32;
  }
  wire->reserve(size);
  append_number(wire, '*', static_cast<int64_t>(params.size() + 1));
  append_bulk(wire, command);
  for (const std::string& param : params) {
    append_bulk(wire, param);
  }
}

void append_command(std::string* wire, std::initializer_list<std::string_view> parts) {
  append_number(wire, '*', static_cast<int64_t>(parts.size()));
  for (const std::string_view part : parts) {
    append_bulk(wire, part);
  }
}

void append_value(std::string* wire, const protocol::RedisValue& value) {
  switch (value.get_type()) {
    case REDIS_REPLY_TYPE_STRING:
      append_bulk(wire, *value.string_view());
      break;
    case REDIS_REPLY_TYPE_STATUS:
      append_line(wire, '+', *value.string_view());
      break;
    case REDIS_REPLY_TYPE_ERROR:
      append_line(wire, '-', *value.string_view());
      break;
    case REDIS_REPLY_TYPE_INTEGER:
      append_number(wire, ':', value.int_value());
      break;
    case REDIS_REPLY_TYPE_ARRAY:
      append_number(wire, '*', static_cast<int64_t>(value.arr_size()));
      for (size_t i = 0; i < value.arr_size(); i++) {
        append_value(wire, value[i]);
      }
      break;
    default:
      wire->append("$-1\r\n");
      break;
  }
}

}  // namespace workflow

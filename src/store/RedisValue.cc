#include <cassert>
#include <string_view>
#include <utility>

#include "workflow/RedisMessage.h"

namespace protocol {

namespace {

std::string_view text_of(const char* text) {
  return text ? std::string_view(text) : std::string_view();
}

// Bytes as in a string literal of C.
void append_escaped(std::string* line, std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
      case '\\':
        line->push_back('\\');
        line->push_back(c);
        break;
      case '\n':
        line->append("\\n");
        break;
      case '\r':
        line->append("\\r");
        break;
      case '\t':
        line->append("\\t");
        break;
      default:
        if (byte >= 0x20 && byte < 0x7f) {
          line->push_back(c);
        } else {
          line->append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 0xf]);
        }
    }
  }
}

void append_debug(std::string* line, const RedisValue& value) {
  switch (value.get_type()) {
    case REDIS_REPLY_TYPE_STRING:
      line->push_back('"');
      append_escaped(line, *value.string_view());
      line->push_back('"');
      break;
    case REDIS_REPLY_TYPE_STATUS:
      append_escaped(line, *value.string_view());
      break;
    case REDIS_REPLY_TYPE_ERROR:
      line->append("(error) ");
      append_escaped(line, *value.string_view());
      break;
    case REDIS_REPLY_TYPE_INTEGER:
      line->append(std::to_string(value.int_value()));
      break;
    case REDIS_REPLY_TYPE_ARRAY:
      line->push_back('[');
      for (size_t i = 0; i < value.arr_size(); i++) {
        line->append(i > 0 ? ", " : "");
        append_debug(line, value[i]);
      }
      line->push_back(']');
      break;
    default:
      line->append("nil");
      break;
  }
}

}  // namespace

// The copy is made before the variant gets it. If the copy constructor of a std::variant of strings
// and vectors throws, libstdc++ 12 destroys an alternative that was never made.
RedisValue::RedisValue(const RedisValue& value) : type_(value.type_) {
  if (const std::string* const text = value.string_view()) {
    content_ = std::string(*text);
  } else if (const Array* const array = std::get_if<Array>(&value.content_)) {
    content_ = Array(*array);
  } else if (const int64_t* const number = std::get_if<int64_t>(&value.content_)) {
    content_ = *number;
  }
}

RedisValue& RedisValue::operator=(const RedisValue& value) {
  RedisValue copy(value);
  return *this = std::move(copy);
}

RedisValue::RedisValue(RedisValue&& value) noexcept
    : type_(std::exchange(value.type_, REDIS_REPLY_TYPE_NIL)),
      content_(std::exchange(value.content_, {})) {}

RedisValue& RedisValue::operator=(RedisValue&& value) noexcept {
  if (this != &value) {
    // What is assigned may lie inside this value.
    RedisValue taken(std::move(value));
    type_ = std::exchange(taken.type_, REDIS_REPLY_TYPE_NIL);
    std::swap(content_, taken.content_);
  }
  return *this;
}

void RedisValue::set_nil() {
  type_ = REDIS_REPLY_TYPE_NIL;
  content_ = std::monostate();
}

void RedisValue::set_int(int64_t number) {
  type_ = REDIS_REPLY_TYPE_INTEGER;
  content_ = number;
}

void RedisValue::set_text(int type, const char* text, size_t size) {
  // The text may be a part of this value.
  std::string copy(text ? text : "", text ? size : 0);
  content_ = std::move(copy);
  type_ = type;
}

void RedisValue::set_string(const std::string& text) {
  set_text(REDIS_REPLY_TYPE_STRING, text.data(), text.size());
}

void RedisValue::set_string(const char* text) {
  set_text(REDIS_REPLY_TYPE_STRING, text, text_of(text).size());
}

void RedisValue::set_string(const char* text, size_t size) {
  set_text(REDIS_REPLY_TYPE_STRING, text, size);
}

void RedisValue::set_status(const std::string& text) {
  set_text(REDIS_REPLY_TYPE_STATUS, text.data(), text.size());
}

void RedisValue::set_status(const char* text) {
  set_text(REDIS_REPLY_TYPE_STATUS, text, text_of(text).size());
}

void RedisValue::set_status(const char* text, size_t size) {
  set_text(REDIS_REPLY_TYPE_STATUS, text, size);
}

void RedisValue::set_error(const std::string& text) {
  set_text(REDIS_REPLY_TYPE_ERROR, text.data(), text.size());
}

void RedisValue::set_error(const char* text) {
  set_text(REDIS_REPLY_TYPE_ERROR, text, text_of(text).size());
}

void RedisValue::set_error(const char* text, size_t size) {
  set_text(REDIS_REPLY_TYPE_ERROR, text, size);
}

void RedisValue::set_array(size_t size) {
  content_ = Array(size);
  type_ = REDIS_REPLY_TYPE_ARRAY;
}

std::string RedisValue::string_value() const {
  const std::string* text = string_view();
  return text ? *text : std::string();
}

int64_t RedisValue::int_value() const {
  const int64_t* number = std::get_if<int64_t>(&content_);
  return number ? *number : 0;
}

size_t RedisValue::arr_size() const {
  const Array* array = std::get_if<Array>(&content_);
  return array ? array->size() : 0;
}

void RedisValue::arr_clear() {
  set_array(0);
}

void RedisValue::arr_resize(size_t size) {
  if (!is_array()) {
    set_array(size);
  } else {
    std::get<Array>(content_).resize(size);
  }
}

RedisValue& RedisValue::arr_at(size_t i) {
  assert(i < arr_size());
  return std::get<Array>(content_)[i];
}

const RedisValue& RedisValue::arr_at(size_t i) const {
  assert(i < arr_size());
  return std::get<Array>(content_)[i];
}

std::string RedisValue::debug_string() const {
  std::string line;
  append_debug(&line, *this);
  return line;
}

}  // namespace protocol

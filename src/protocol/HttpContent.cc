#include "protocol/HttpContent.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "protocol/HttpGrammar.h"
#include "workflow/HttpUtil.h"

namespace protocol {

namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kColon = ": ";
constexpr std::string_view kDefaultVersion = "HTTP/1.1";

bool fail_with(int error) {
  errno = error;
  return false;
}

std::string_view value_or(std::string_view text, std::string_view otherwise) {
  return text.data() != nullptr ? text : otherwise;
}

// The usual reason phrase of a status code, which has three digits.
std::string_view usual_phrase(std::string_view code) {
  const char* phrase =
      HttpUtil::get_reason_phrase((code[0] - '0') * 100 + (code[1] - '0') * 10 + (code[2] - '0'));
  return phrase != nullptr ? phrase : "Unknown";
}

// The start line as five pieces: three parts and what separates them.
struct StartLine {
  std::string_view pieces[3];

  StartLine(const HttpContent& content, bool is_request) {
    const std::string_view version =
        value_or(content.start[HttpContent::kVersion], kDefaultVersion);
    const std::string_view first = content.start[HttpContent::kFirst];
    const std::string_view second = content.start[HttpContent::kSecond];
    if (is_request) {
      pieces[0] = value_or(first, "GET");
      pieces[1] = value_or(second, "/");
      pieces[2] = version;
    } else {
      pieces[0] = version;
      pieces[1] = value_or(first, "200");
      pieces[2] = second.data() != nullptr ? second : usual_phrase(pieces[1]);
    }
  }

  size_t size() const {
    return pieces[0].size() + 1 + pieces[1].size() + 1 + pieces[2].size() + kLineEnd.size();
  }
};

char* write(char* to, std::string_view text) {
  return std::copy(text.begin(), text.end(), to);  // also of a text without bytes, at null
}

size_t head_size(const StartLine& line, const HttpFields& fields) {
  size_t size = line.size() + kLineEnd.size();
  for (const HttpFields::Field& field : fields) {
    size += field.name_size + kColon.size() + field.value_size + kLineEnd.size();
  }
  return size;
}

void write_head(char* to, const StartLine& line, const HttpFields& fields) {
  to = write(to, line.pieces[0]);
  *to++ = ' ';
  to = write(to, line.pieces[1]);
  *to++ = ' ';
  to = write(to, line.pieces[2]);
  to = write(to, kLineEnd);
  for (const HttpFields::Field& field : fields) {
    to = write(to, field.name_view());
    to = write(to, kColon);
    to = write(to, field.value_view());
    to = write(to, kLineEnd);
  }
  write(to, kLineEnd);
}

}  // namespace

bool HttpContent::set_start_part(int part, std::string_view string) {
  char* copy = text.allocate(string.size() + 1);
  if (copy == nullptr) return fail_with(ENOMEM);
  *write(copy, string) = '\0';
  start[part] = {copy, string.size()};
  return true;
}

bool HttpContent::store_field(std::string_view name, std::string_view value,
                              HttpFields::Field* field) {
  if (!is_token(name) || !is_safe_text(value) || name.size() > UINT32_MAX ||
      value.size() > UINT32_MAX) {
    return fail_with(EINVAL);
  }
  char* name_text = text.allocate(name.size() + value.size());
  if (name_text == nullptr) return fail_with(ENOMEM);
  char* value_text = write(name_text, name);
  write(value_text, value);
  *field = {name_text, value_text, static_cast<uint32_t>(name.size()),
            static_cast<uint32_t>(value.size())};
  return true;
}

bool HttpContent::add_field(std::string_view name, std::string_view value) {
  HttpFields::Field field;
  return store_field(name, value, &field) && (fields.add(field) || fail_with(ENOMEM));
}

bool HttpContent::set_field(std::string_view name, std::string_view value) {
  if (!has_field(name)) return add_field(name, value);
  HttpFields::Field field;
  if (!store_field(name, value, &field)) return false;
  size_t place = fields.find(name);
  fields[place] = field;
  for (size_t i = fields.find(name, place + 1); i != HttpFields::kNotFound;
       i = fields.find(name, i)) {
    fields.erase(i);
  }
  return true;
}

bool HttpContent::encode_head(bool is_request, size_t room, struct iovec* head) {
  const StartLine line(*this, is_request);
  const size_t size = head_size(line, fields);
  if (size + room > encoded_capacity) {
    encoded = text.allocate(size + room);
    encoded_capacity = encoded != nullptr ? size + room : 0;
    if (encoded == nullptr) return fail_with(ENOMEM);
  }
  write_head(encoded, line, fields);
  *head = {encoded, size};
  return true;
}

}  // namespace protocol

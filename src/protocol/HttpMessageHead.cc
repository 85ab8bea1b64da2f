#include <cerrno>
#include <cstring>
#include <string_view>

#include "protocol/HttpContent.h"
#include "protocol/HttpFraming.h"
#include "protocol/HttpGrammar.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

// The head of a message: how its start line and fields are set, read and written.
namespace protocol {

namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kColon = ": ";
constexpr std::string_view kDefaultVersion = "HTTP/1.1";

std::string_view view_of(const void* bytes, size_t size) {
  return {static_cast<const char*>(bytes), size};
}

bool refuse_text() {
  errno = EINVAL;
  return false;
}

// A null text is refused like one that contains a NUL.
std::string_view text_of(const char* text) {
  return text != nullptr ? std::string_view(text) : std::string_view("\0", 1);
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

  StartLine(const HttpContent* content, bool is_request) {
    std::string_view version, first, second;
    if (content != nullptr) {
      version = content->start[HttpContent::kVersion];
      first = content->start[HttpContent::kFirst];
      second = content->start[HttpContent::kSecond];
    }
    version = value_or(version, kDefaultVersion);
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
  std::memcpy(to, text.data(), text.size());
  return to + text.size();
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

int HttpMessage::encode(struct iovec vectors[], int max) {
  if (max < 1) {
    errno = EINVAL;
    return -1;
  }
  HttpContent* content = use_content();
  if (content == nullptr) return -1;
  StartLine line(content, is_request_);
  size_t size = head_size(line, content->fields);
  // With a single vector the body is merged behind the head.
  bool merge_all = max == 1;
  size_t capacity = merge_all ? size + content->output.size() : size;
  if (capacity > content->encoded_capacity) {
    content->encoded = content->text.allocate(capacity);
    content->encoded_capacity = content->encoded != nullptr ? capacity : 0;
    if (content->encoded == nullptr) {
      errno = ENOMEM;
      return -1;
    }
  }
  write_head(content->encoded, line, content->fields);
  vectors[0] = {content->encoded, capacity};
  if (merge_all) {
    content->output.copy_to(content->encoded + size);
    return 1;
  }
  int blocks = content->output.describe(vectors + 1, max - 1);
  if (blocks < 0) {
    errno = ENOMEM;
    return -1;
  }
  return 1 + blocks;
}

const char* HttpMessage::get_start_part(int part) const {
  return content_ ? content_->start[part].data() : nullptr;
}

bool HttpMessage::set_start_part(int part, const char* text, size_t size) {
  HttpContent* content = use_content();
  if (content == nullptr) return false;
  const char* stored = content->store({text, size});
  if (stored == nullptr) {
    errno = ENOMEM;
    return false;
  }
  content->start[part] = {stored, size};
  return true;
}

const char* HttpMessage::get_http_version() const {
  return get_start_part(HttpContent::kVersion);
}

bool HttpMessage::set_http_version(const std::string& version) {
  if (!is_http_version(version)) return refuse_text();
  return set_start_part(HttpContent::kVersion, version.data(), version.size());
}

bool HttpMessage::set_http_version(const char* version) {
  const std::string_view text = text_of(version);
  if (!is_http_version(text)) return refuse_text();
  return set_start_part(HttpContent::kVersion, text.data(), text.size());
}

const char* HttpRequest::get_method() const {
  return get_start_part(HttpContent::kFirst);
}

bool HttpRequest::set_method(const char* method) {
  return set_method(std::string(text_of(method)));
}

bool HttpRequest::set_method(const std::string& method) {
  if (!is_token(method)) return refuse_text();
  return set_start_part(HttpContent::kFirst, method.data(), method.size());
}

const char* HttpRequest::get_request_uri() const {
  return get_start_part(HttpContent::kSecond);
}

bool HttpRequest::set_request_uri(const char* uri) {
  const std::string_view text = text_of(uri);
  if (!is_sendable_target(text)) return refuse_text();
  return set_start_part(HttpContent::kSecond, text.data(), text.size());
}

bool HttpRequest::set_request_uri(const std::string& uri) {
  if (!is_sendable_target(uri)) return refuse_text();
  return set_start_part(HttpContent::kSecond, uri.data(), uri.size());
}

const char* HttpResponse::get_status_code() const {
  return get_start_part(HttpContent::kFirst);
}

bool HttpResponse::set_status_code(const char* code) {
  const std::string_view text = text_of(code);
  if (!is_status_code(text)) return refuse_text();
  return set_start_part(HttpContent::kFirst, text.data(), text.size());
}

bool HttpResponse::set_status_code(const std::string& code) {
  if (!is_status_code(code)) return refuse_text();
  return set_start_part(HttpContent::kFirst, code.data(), code.size());
}

const char* HttpResponse::get_reason_phrase() const {
  return get_start_part(HttpContent::kSecond);
}

bool HttpResponse::set_reason_phrase(const char* phrase) {
  const std::string_view text = text_of(phrase);
  if (!is_safe_text(text)) return refuse_text();
  return set_start_part(HttpContent::kSecond, text.data(), text.size());
}

bool HttpResponse::set_reason_phrase(const std::string& phrase) {
  if (!is_safe_text(phrase)) return refuse_text();
  return set_start_part(HttpContent::kSecond, phrase.data(), phrase.size());
}

bool HttpMessage::is_chunked() const {
  return content_ && protocol::is_chunked(content_->fields);
}

bool HttpMessage::is_keep_alive() const {
  return !content_ ||
         protocol::is_keep_alive(content_->fields, content_->start[HttpContent::kVersion]);
}

namespace {

bool has_field(const HttpContent* content, std::string_view name) {
  return content != nullptr && content->fields.find(name) != HttpFields::kNotFound;
}

// Copies the field into the message's text. Returns false and sets errno if the field must not be
// sent.
bool store_field(HttpContent* content, std::string_view name, std::string_view value,
                 HttpFields::Field* field) {
  if (!is_token(name) || !is_safe_text(value) || name.size() > UINT32_MAX ||
      value.size() > UINT32_MAX) {
    return refuse_text();
  }
  char* text = content->text.allocate(name.size() + value.size());
  if (text == nullptr) {
    errno = ENOMEM;
    return false;
  }
  char* value_text = write(text, name);
  write(value_text, value);
  *field = {text, value_text, static_cast<uint32_t>(name.size()),
            static_cast<uint32_t>(value.size())};
  return true;
}

bool add_field(HttpContent* content, std::string_view name, std::string_view value) {
  HttpFields::Field field;
  if (content == nullptr || !store_field(content, name, value, &field)) return false;
  if (content->fields.add(field)) return true;
  errno = ENOMEM;
  return false;
}

bool set_field(HttpContent* content, std::string_view name, std::string_view value) {
  if (!has_field(content, name)) return add_field(content, name, value);
  HttpFields::Field field;
  if (!store_field(content, name, value, &field)) return false;
  HttpFields& fields = content->fields;
  size_t place = fields.find(name);
  fields[place] = field;
  for (size_t i = fields.find(name, place + 1); i != HttpFields::kNotFound;
       i = fields.find(name, i)) {
    fields.erase(i);
  }
  return true;
}

}  // namespace

bool HttpMessage::add_header(const struct HttpMessageHeader* header) {
  return add_field(use_content(), view_of(header->name, header->name_len),
                   view_of(header->value, header->value_len));
}

bool HttpMessage::set_header(const struct HttpMessageHeader* header) {
  return set_field(use_content(), view_of(header->name, header->name_len),
                   view_of(header->value, header->value_len));
}

bool HttpMessage::add_header_pair(const char* name, const char* value) {
  return add_field(use_content(), text_of(name), text_of(value));
}

bool HttpMessage::set_header_pair(const char* name, const char* value) {
  return set_field(use_content(), text_of(name), text_of(value));
}

bool HttpMessage::add_header_pair(const std::string& name, const std::string& value) {
  return add_field(use_content(), name, value);
}

bool HttpMessage::set_header_pair(const std::string& name, const std::string& value) {
  return set_field(use_content(), name, value);
}

bool HttpMessage::has_connection_header() const {
  return has_field(content(), "Connection");
}

bool HttpMessage::has_content_length_header() const {
  return has_field(content(), "Content-Length");
}

bool HttpMessage::has_keep_alive_header() const {
  return has_field(content(), "Keep-Alive");
}

}  // namespace protocol

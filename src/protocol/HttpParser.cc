#include "protocol/HttpParser.h"

#include "protocol/HttpGrammar.h"

#if !LLHTTP_STRICT_MODE
#error "llhttp must be compiled with LLHTTP_STRICT_MODE=1"
#endif

namespace protocol {

namespace {

struct HeadParse {
  const HttpLimits* limits;
  HttpFields* fields;
  int refusal = 0;
};

int stop(llhttp_t* parser, int refusal) {
  static_cast<HeadParse*>(parser->data)->refusal = refusal;
  return HPE_USER;
}

int on_field_name(llhttp_t* parser, const char* at, size_t length) {
  auto* head = static_cast<HeadParse*>(parser->data);
  if (length > head->limits->field_name_bytes) return stop(parser, 431);
  // Makes llhttp check only the characters of the value, as it does for any other field. It does
  // not know that Content-Length may end with a tab (RFC 9110, 5.6.3), nor which responses have no
  // body whatever their fields say. HttpFraming decides what the value means.
  constexpr uint8_t kAnyField = 0;
  parser->header_state = kAnyField;
  HttpFields::Field field{at, at + length, static_cast<uint32_t>(length), 0};
  return head->fields->add(field) ? 0 : stop(parser, 500);
}

int on_field_value(llhttp_t* parser, const char* at, size_t length) {
  auto* head = static_cast<HeadParse*>(parser->data);
  std::string_view value = trim({at, length});
  HttpFields::Field& field = (*head->fields)[head->fields->size() - 1];
  field.value = value.data();
  field.value_size = static_cast<uint32_t>(value.size());
  return 0;
}

// Stops llhttp here. Otherwise it would decide the framing, or take the rest for a tunnel.
int on_headers_complete(llhttp_t*) {
  return HPE_PAUSED;
}

constexpr llhttp_settings_t make_head_settings() {
  llhttp_settings_t settings{};
  settings.on_header_field = on_field_name;
  settings.on_header_value = on_field_value;
  settings.on_headers_complete = on_headers_complete;
  return settings;
}

constexpr llhttp_settings_t kHeadSettings = make_head_settings();

}  // namespace

int parse_head(bool is_request, const char* head, size_t size, const HttpLimits& limits,
               HttpFields* fields) {
  HeadParse parse{&limits, fields};
  llhttp_t parser;
  llhttp_init(&parser, is_request ? HTTP_REQUEST : HTTP_RESPONSE, &kHeadSettings);
  parser.data = &parse;
  switch (llhttp_execute(&parser, head, size)) {
    case HPE_PAUSED:
      return 0;
    case HPE_USER:
      return parse.refusal;
    // The start line was found well-formed before. So llhttp does not know the method, or does not
    // accept it for HTTP.
    case HPE_INVALID_METHOD:
    case HPE_INVALID_CONSTANT:
      return 501;
    default:
      return 400;
  }
}

constinit const llhttp_settings_t ChunkGrammar::kSettings = [] {
  llhttp_settings_t settings{};
  settings.on_chunk_header = on_chunk_header;
  settings.on_header_field = on_trailer_name;
  settings.on_message_complete = on_message_complete;
  return settings;
}();

ChunkGrammar::ChunkGrammar() {
  // A constant head brings llhttp to the first chunk, whatever the real head looked like.
  static constexpr std::string_view kHead = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  llhttp_init(&parser_, HTTP_REQUEST, &kSettings);
  parser_.data = this;
  llhttp_execute(&parser_, kHead.data(), kHead.size());
  trailer_name_ = {};
}

int ChunkGrammar::on_chunk_header(llhttp_t* parser) {
  static_cast<ChunkGrammar*>(parser->data)->size_known_ = true;
  return 0;
}

int ChunkGrammar::on_trailer_name(llhttp_t* parser, const char* at, size_t length) {
  static_cast<ChunkGrammar*>(parser->data)->trailer_name_ = {at, length};
  return 0;
}

int ChunkGrammar::on_message_complete(llhttp_t* parser) {
  static_cast<ChunkGrammar*>(parser->data)->complete_ = true;
  return 0;
}

bool ChunkGrammar::take_size(std::string_view digits, uint64_t* size) {
  size_known_ = false;
  if (!take(digits.data(), digits.size()) || !take("\r\n", 2) || !size_known_) return false;
  *size = parser_.content_length;
  return true;
}

bool ChunkGrammar::take(const char* bytes, size_t length) {
  trailer_name_ = {};
  return llhttp_execute(&parser_, bytes, length) == HPE_OK;
}

}  // namespace protocol

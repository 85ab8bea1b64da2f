#include "protocol/HttpFraming.h"

#include "protocol/HttpGrammar.h"

namespace protocol {

namespace {

constexpr std::string_view kContentLength = "Content-Length";
constexpr std::string_view kTransferEncoding = "Transfer-Encoding";
constexpr std::string_view kHostField = "Host";

// The fields that decide framing, found in one pass.
struct FramingFields {
  const HttpFields::Field* length = nullptr;
  const HttpFields::Field* coding = nullptr;
  const HttpFields::Field* host = nullptr;
  bool repeated = false;  // one of them occurs more than once

  explicit FramingFields(const HttpFields& fields) {
    for (const HttpFields::Field& field : fields) {
      switch (field.name_size) {
        case kHostField.size():
          note(field, kHostField, &host);
          break;
        case kContentLength.size():
          note(field, kContentLength, &length);
          break;
        case kTransferEncoding.size():
          note(field, kTransferEncoding, &coding);
          break;
        default:
          break;
      }
    }
  }

 private:
  void note(const HttpFields::Field& field, std::string_view name,
            const HttpFields::Field** place) {
    if (!equal_ignoring_case(field.name_view(), name)) return;
    repeated = repeated || *place != nullptr;
    *place = &field;
  }
};

// Returns 0 for exactly one "chunked", 501 for a list that a recipient with more codings could
// read, and 400 for a list that no recipient can read.
int check_transfer_coding(std::string_view value) {
  if (equal_ignoring_case(value, "chunked")) return 0;
  ListElements elements(value);
  std::string_view element;
  bool chunked_seen = false;
  while (elements.next(&element)) {
    // Nothing may follow "chunked", not even another "chunked".
    if (chunked_seen || !is_token(element)) return 400;
    chunked_seen = equal_ignoring_case(element, "chunked");
  }
  return 501;
}

// The part that requests and responses have in common. `until_close`: the body of a message without
// any length ends with the connection, as that of a response does.
Framing frame(const FramingFields& found, std::string_view version, bool until_close) {
  Framing framing;
  if (found.repeated || (found.coding != nullptr && found.length != nullptr)) {
    framing.refusal = 400;
  } else if (found.coding != nullptr) {
    // HTTP/1.0 has no transfer codings, so a server or proxy before us may have ignored the field.
    framing.refusal =
        version == "HTTP/1.0" ? 400 : check_transfer_coding(found.coding->value_view());
    framing.body = BodyKind::kChunked;
  } else if (found.length != nullptr) {
    auto length = parse_content_length(found.length->value_view());
    if (!length) {
      framing.refusal = 400;
    } else if (*length > 0) {
      framing.body = BodyKind::kLength;
      framing.length = *length;
    }
  } else if (until_close) {
    framing.body = BodyKind::kUntilClose;
  }
  return framing;
}

bool has_list_token(const HttpFields& fields, std::string_view name, std::string_view token) {
  for (size_t i = fields.find(name); i != HttpFields::kNotFound; i = fields.find(name, i + 1)) {
    ListElements elements(fields[i].value_view());
    std::string_view element;
    while (elements.next(&element)) {
      if (equal_ignoring_case(element, token)) return true;
    }
  }
  return false;
}

}  // namespace

Framing frame_request(const HttpFields& fields, std::string_view method, std::string_view version) {
  FramingFields found(fields);
  Framing framing = frame(found, version, false);
  if (framing.refusal != 0) return framing;
  bool host_missing = found.host == nullptr && version != "HTTP/1.0";
  bool host_bad = found.host != nullptr && !is_host_value(found.host->value_view());
  // CONNECT has no content (RFC 9110, 9.3.6). The bytes after it could be a body or belong to the
  // tunnel.
  bool connect_with_body = method == "CONNECT" && framing.body != BodyKind::kNone;
  if (host_missing || host_bad || connect_with_body) framing.refusal = 400;
  return framing;
}

Framing frame_response(const HttpFields& fields, std::string_view version, std::string_view status,
                       bool zero_body) {
  FramingFields found(fields);
  bool bodiless = zero_body || status[0] == '1' || status == "204" || status == "304";
  Framing framing = frame(found, version, true);
  // A response to HEAD, or 304, may carry the length of the body it does not have.
  if (bodiless) framing.body = BodyKind::kNone;
  return framing;
}

bool is_allowed_in_trailer(std::string_view name) {
  return !equal_ignoring_case(name, kContentLength) &&
         !equal_ignoring_case(name, kTransferEncoding) && !equal_ignoring_case(name, kHostField);
}

bool is_chunked(const HttpFields& fields) {
  return has_list_token(fields, kTransferEncoding, "chunked");
}

bool is_keep_alive(const HttpFields& fields, std::string_view version) {
  if (has_list_token(fields, "Connection", "close")) return false;
  return version != "HTTP/1.0" || has_list_token(fields, "Connection", "keep-alive");
}

Expectation expectation_of(const HttpFields& fields) {
  constexpr std::string_view kExpect = "Expect";
  Expectation expectation = Expectation::kNone;
  for (size_t i = fields.find(kExpect); i != HttpFields::kNotFound;
       i = fields.find(kExpect, i + 1)) {
    if (!equal_ignoring_case(fields[i].value_view(), "100-continue")) return Expectation::kUnknown;
    expectation = Expectation::kContinue;
  }
  return expectation;
}

}  // namespace protocol

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string_view>

#include "protocol/Arena.h"
#include "protocol/HttpBody.h"
#include "protocol/HttpFields.h"
#include "protocol/HttpReceiver.h"

namespace protocol {

// The content of a message that is in use, in one allocation with room for a small head and reply.
// One HttpMessage owns it. Moving the message passes the pointer on, so nothing in here ever moves.
// The text of the start line and of the fields lies in `text`; `start` and `fields` are views into
// it.
struct HttpContent {
  // kFirst: method or status code. kSecond: request target or reason phrase.
  enum StartPart { kVersion, kFirst, kSecond, kStartParts };

  static constexpr size_t kInlineText = 256;

  HttpContent() = default;
  HttpContent(const HttpContent&) = delete;
  HttpContent& operator=(const HttpContent&) = delete;

  // These three copy what they are given. They return false with EINVAL if the field must not be
  // sent, and with ENOMEM when memory is exhausted.
  bool set_start_part(int part, std::string_view string);
  bool add_field(std::string_view name, std::string_view value);
  // Replaces the first field of that name, and removes all others.
  bool set_field(std::string_view name, std::string_view value);

  bool has_field(std::string_view name) const { return fields.find(name) != HttpFields::kNotFound; }

  // Writes the head into `encoded`, which has `room` bytes behind it. Returns false with ENOMEM
  // when memory is exhausted.
  bool encode_head(bool is_request, size_t room, struct iovec* head);

  // Removes the start line and the fields. Their text stays in `text` until the message is gone.
  void clear_head() {
    fields.clear();
    for (std::string_view& part : start)
      part = {};
  }

  char inline_text[kInlineText];  // lent to `text`
  Arena text{inline_text, kInlineText};
  HttpFields fields;
  // Null-terminated. An absent part is a null pointer.
  std::string_view start[kStartParts];
  HttpReceiver receiver;
  HttpBody output;
  // The buffer of the encoded head, which is kept so that the next head can be written into it.
  char* encoded = nullptr;
  size_t encoded_capacity = 0;

 private:
  bool store_field(std::string_view name, std::string_view value, HttpFields::Field* field);
};

}  // namespace protocol

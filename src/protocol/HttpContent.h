#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "protocol/Arena.h"
#include "protocol/HttpBody.h"
#include "protocol/HttpFields.h"
#include "protocol/HttpReceiver.h"

namespace protocol {

// The content of a message that is in use, in one allocation with room for a small head and reply.
// One HttpMessage owns it. Moving the message passes the pointer on, so nothing in here ever moves.
// Text lies in `text`, and everything else is a view into it.
struct HttpContent {
  // kFirst: method or status code. kSecond: request target or reason phrase.
  enum StartPart { kVersion, kFirst, kSecond, kStartParts };

  static constexpr size_t kInlineText = 256;

  HttpContent() = default;
  HttpContent(const HttpContent&) = delete;
  HttpContent& operator=(const HttpContent&) = delete;

  // Returns a null-terminated copy, or null when memory is exhausted.
  const char* store(std::string_view string) {
    char* copy = text.allocate(string.size() + 1);
    if (copy == nullptr) return nullptr;
    std::memcpy(copy, string.data(), string.size());
    copy[string.size()] = '\0';
    return copy;
  }

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
};

}  // namespace protocol

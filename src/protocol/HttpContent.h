#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "protocol/Arena.h"
#include "protocol/HttpBody.h"
#include "protocol/HttpFields.h"
#include "protocol/HttpReceiver.h"

namespace protocol {

// What a message that is in use holds, in one allocation with room for a small head and reply.
// Owned by one HttpMessage; moving the message hands over the pointer, so nothing in here ever
// moves. Text lies in `text`, and everything else is a view into it.
struct HttpContent {
  // kFirst: method or status code. kSecond: request target or reason phrase.
  enum StartPart { kVersion, kFirst, kSecond, kStartParts };

  static constexpr size_t kInlineText = 256;

  HttpContent() = default;
  HttpContent(const HttpContent&) = delete;
  HttpContent& operator=(const HttpContent&) = delete;

  // A null-terminated copy; null when memory is exhausted.
  const char* store(std::string_view string) {
    char* copy = text.allocate(string.size() + 1);
    if (copy == nullptr) return nullptr;
    std::memcpy(copy, string.data(), string.size());
    copy[string.size()] = '\0';
    return copy;
  }

  // Forgets start line and fields. Their text stays where it is until the message goes.
  void clear_head() {
    fields.clear();
    for (std::string_view& part : start)
      part = {};
  }

  char inline_text[kInlineText];  // lent to `text`
  Arena text{inline_text, kInlineText};
  HttpFields fields;
  // Null-terminated; a null pointer where absent.
  std::string_view start[kStartParts];
  HttpReceiver receiver;
  HttpBody output;
  // The encoded head, kept to be written anew in place.
  char* encoded = nullptr;
  size_t encoded_capacity = 0;
};

}  // namespace protocol

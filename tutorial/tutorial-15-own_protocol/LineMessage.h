#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"

// A protocol of one's own: a message is a line of text, without "\n" inside.
//
// append() takes bytes as they come, in any pieces; encode() says what to send.
class LineMessage : public protocol::ProtocolMessage {
 public:
  const std::string& text() const { return text_; }
  void set_text(std::string text) { text_ = std::move(text); }

  int encode(struct iovec vectors[], int) override {
    static char newline[] = "\n";
    vectors[0] = {&text_[0], text_.size()};
    vectors[1] = {newline, 1};
    return 2;
  }

  int append(const void* buf, size_t* size) override {
    const char* bytes = static_cast<const char*>(buf);
    const void* end = std::memchr(bytes, '\n', *size);
    const size_t length = end ? static_cast<size_t>(static_cast<const char*>(end) - bytes) : *size;
    if (length > get_size_limit() - text_.size()) {
      errno = EMSGSIZE;
      return -1;
    }
    text_.append(bytes, length);
    if (!end) return 0;  // more is to come
    *size = length + 1;  // what follows belongs to the next message
    return 1;
  }

  LineMessage() { set_size_limit(64 * 1024); }
  LineMessage(LineMessage&&) = default;
  LineMessage& operator=(LineMessage&&) = default;

 private:
  std::string text_;
};

// Two types, so that a request cannot be taken for a response.
class LineRequest : public LineMessage {};
class LineResponse : public LineMessage {};

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "workflow/ProtocolMessage.h"

// The messages of Redis (RESP, version 2). The functions of these classes are in the library
// workflow::store.

namespace workflow {
class RedisParser;
}

// What RedisValue::get_type() returns.
enum {
  REDIS_REPLY_TYPE_STRING = 1,
  REDIS_REPLY_TYPE_ARRAY = 2,
  REDIS_REPLY_TYPE_INTEGER = 3,
  REDIS_REPLY_TYPE_NIL = 4,
  REDIS_REPLY_TYPE_STATUS = 5,
  REDIS_REPLY_TYPE_ERROR = 6
};

namespace protocol {

// A value that Redis sends or that a script receives: nil, an integer, a text of any bytes (a
// string, a status or an error), or an array of values. A new value is nil.
//
// Copying copies everything inside. A moved-from value is nil. Not thread-safe: one thread at a
// time may change it.
class RedisValue {
 public:
  RedisValue() = default;
  RedisValue(const RedisValue &value);
  // If there is no memory for the copy, nothing has changed.
  RedisValue &operator=(const RedisValue &value);
  RedisValue(RedisValue &&value) noexcept;
  RedisValue &operator=(RedisValue &&value) noexcept;
  ~RedisValue() = default;

  // Each of these replaces what the value was. A null pointer counts as an empty text.
  void set_nil();
  void set_int(int64_t number);
  void set_string(const std::string &text);
  void set_string(const char *text);
  void set_string(const char *text, size_t size);
  void set_status(const std::string &text);
  void set_status(const char *text);
  void set_status(const char *text, size_t size);
  void set_error(const std::string &text);
  void set_error(const char *text);
  void set_error(const char *text, size_t size);
  // Makes this an array of `size` nils.
  void set_array(size_t size);

  // Everything but an error is ok.
  bool is_ok() const { return type_ != REDIS_REPLY_TYPE_ERROR; }
  bool is_error() const { return type_ == REDIS_REPLY_TYPE_ERROR; }
  bool is_nil() const { return type_ == REDIS_REPLY_TYPE_NIL; }
  bool is_int() const { return type_ == REDIS_REPLY_TYPE_INTEGER; }
  bool is_array() const { return type_ == REDIS_REPLY_TYPE_ARRAY; }
  // Whether this is a string or a status.
  bool is_string() const {
    return type_ == REDIS_REPLY_TYPE_STRING || type_ == REDIS_REPLY_TYPE_STATUS;
  }
  int get_type() const { return type_; }

  // The text of a string, a status or an error. For other values string_value() is empty and
  // string_view() returns null. The pointer is valid until the value changes.
  std::string string_value() const;
  const std::string *string_view() const { return std::get_if<std::string>(&content_); }
  // 0 if the value is not an integer.
  int64_t int_value() const;

  // The elements of an array; another value has none. arr_clear() and arr_resize() make an array of
  // any value. `i` must be less than arr_size().
  size_t arr_size() const;
  void arr_clear();
  void arr_resize(size_t size);
  RedisValue &arr_at(size_t i);
  const RedisValue &arr_at(size_t i) const;
  RedisValue &operator[](size_t i) { return arr_at(i); }
  const RedisValue &operator[](size_t i) const { return arr_at(i); }

  // Calls set_nil().
  void clear() { set_nil(); }

  // The value as one line of printable ASCII, for logs: bytes that are not printable are escaped as
  // in C (\n, \x00). The format may change.
  std::string debug_string() const;

 private:
  friend class workflow::RedisParser;

  using Array = std::vector<RedisValue>;

  void set_text(int type, const char *text, size_t size);

  int type_ = REDIS_REPLY_TYPE_NIL;
  // The text of a string, a status or an error.
  std::variant<std::monostate, int64_t, std::string, Array> content_;
};

// What requests and responses have in common: a message is one value, and arrives as one.
//
// What is received is limited before memory is taken for it. Arrays may be nested seven deep. A
// value beyond the size limit is refused with EMSGSIZE as soon as a length in it says so or that
// many bytes have come. The limit also holds for the memory of the values in arrays, which is more
// than the bytes on the wire if the values are small; up to 64 KiB of it are always allowed. A line
// (a status, an error) may have 64 KiB. Anything else that is not RESP is refused with EBADMSG.
class RedisMessage : public ProtocolMessage {
 public:
  int append(const void *buf, size_t *size) override;
  using ProtocolMessage::append;

  RedisMessage();
  RedisMessage(RedisMessage &&message) noexcept;
  RedisMessage &operator=(RedisMessage &&message) noexcept;
  ~RedisMessage() override;

 protected:
  // A whole value has arrived. Returns 0, or an errno value if that is not a message of this class.
  virtual int received(RedisValue &&value) = 0;

  std::string encoded_;  // what encode() describes

 private:
  // Returns -1. The message takes no more bytes.
  int refuse(int error);

  std::unique_ptr<workflow::RedisParser> parser_;  // while a message is being received
  bool complete_ = false;
  int refusal_ = 0;  // not 0: an errno value
};

// A command and its parameters, which may contain any bytes.
class RedisRequest : public RedisMessage {
 public:
  void set_request(const std::string &command, const std::vector<std::string> &params);

  // Return false if there is no command.
  bool get_command(std::string &command) const;
  bool get_params(std::vector<std::string> &params) const;
  // Return references. What they refer to is empty if there is no command.
  const std::string &command() const { return command_; }
  const std::vector<std::string> &params() const { return params_; }

  // Fails with EINVAL if there is no command.
  int encode(struct iovec vectors[], int max) override;

  RedisRequest() = default;
  RedisRequest(RedisRequest &&message) noexcept;
  RedisRequest &operator=(RedisRequest &&message) noexcept;
  ~RedisRequest() override = default;

 protected:
  int received(RedisValue &&value) override;

 private:
  std::string command_;
  std::vector<std::string> params_;
};

// The reply to a command. An error reply is a value like any other (is_error()).
class RedisResponse : public RedisMessage {
 public:
  // Returns false, with `value` nil, if nothing has been received or set.
  bool get_result(RedisValue &value) const;
  // The result itself, or null if nothing has been received or set. Valid until the message
  // changes.
  const RedisValue *result() const { return has_value_ ? &value_ : nullptr; }
  // A CR or LF in a status or an error is sent as a space, because it would end the line.
  bool set_result(const RedisValue &value);
  bool set_result(RedisValue &&value);

  // Without a result, encodes a nil.
  int encode(struct iovec vectors[], int max) override;

  RedisResponse() = default;
  RedisResponse(RedisResponse &&message) noexcept;
  RedisResponse &operator=(RedisResponse &&message) noexcept;
  ~RedisResponse() override = default;

 protected:
  int received(RedisValue &&value) override;

 private:
  RedisValue value_;
  bool has_value_ = false;
};

}  // namespace protocol

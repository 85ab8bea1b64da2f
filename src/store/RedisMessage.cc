#include "workflow/RedisMessage.h"

#include <cerrno>
#include <new>
#include <utility>

#include "store/RedisParser.h"
#include "store/RedisWire.h"

namespace protocol {

using workflow::RedisParser;

RedisMessage::RedisMessage() = default;

RedisMessage::~RedisMessage() = default;

RedisMessage::RedisMessage(RedisMessage&& message) noexcept
    : ProtocolMessage(std::move(message)),
      parser_(std::move(message.parser_)),
      complete_(std::exchange(message.complete_, false)),
      refusal_(std::exchange(message.refusal_, 0)) {}

RedisMessage& RedisMessage::operator=(RedisMessage&& message) noexcept {
  if (this != &message) {
    encoded_.clear();
    message.encoded_.clear();
    parser_ = std::move(message.parser_);
    complete_ = std::exchange(message.complete_, false);
    refusal_ = std::exchange(message.refusal_, 0);
    ProtocolMessage::operator=(std::move(message));
  }
  return *this;
}

int RedisMessage::append(const void* buf, size_t* size) {
  if (refusal_ != 0) return refuse(refusal_);
  if (complete_) {
    *size = 0;
    return 1;
  }
  try {
    if (!parser_) {
      parser_ = std::make_unique<RedisParser>();
    }
    if (const int error = parser_->feed(buf, *size)) return refuse(error);
    RedisValue value;
    switch (parser_->next(size_limit, &value)) {
      case RedisParser::Result::kMore:
        return 0;
      case RedisParser::Result::kRefused:
        return refuse(parser_->error());
      case RedisParser::Result::kValue:
        break;
    }
    *size -= parser_->unparsed_bytes();
    if (const int error = received(std::move(value))) return refuse(error);
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM);
  }
  parser_.reset();
  complete_ = true;
  return 1;
}

int RedisMessage::refuse(int error) {
  parser_.reset();
  refusal_ = error;
  errno = error;
  return -1;
}

namespace {

// Describes the bytes that `write` appends to `encoded`.
template <class WRITE>
int encode_into(std::string& encoded, struct iovec vectors[], int max, WRITE write) {
  if (max < 1) {
    errno = EINVAL;
    return -1;
  }
  try {
    encoded.clear();
    write();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
  vectors[0] = {encoded.data(), encoded.size()};
  return 1;
}

}  // namespace

RedisRequest::RedisRequest(RedisRequest&& message) noexcept
    : RedisMessage(std::move(message)),
      command_(std::exchange(message.command_, {})),
      params_(std::exchange(message.params_, {})) {}

RedisRequest& RedisRequest::operator=(RedisRequest&& message) noexcept {
  if (this != &message) {
    command_ = std::exchange(message.command_, {});
    params_ = std::exchange(message.params_, {});
    RedisMessage::operator=(std::move(message));
  }
  return *this;
}

void RedisRequest::set_request(const std::string& command, const std::vector<std::string>& params) {
  command_ = command;
  params_ = params;
}

bool RedisRequest::get_command(std::string& command) const {
  command = command_;
  return !command_.empty();
}

bool RedisRequest::get_params(std::vector<std::string>& params) const {
  params = params_;
  return !command_.empty();
}

int RedisRequest::encode(struct iovec vectors[], int max) {
  if (command_.empty()) {
    errno = EINVAL;
    return -1;
  }
  return encode_into(encoded_, vectors, max,
                     [this] { workflow::append_command(&encoded_, command_, params_); });
}

int RedisRequest::received(RedisValue&& value) {
  const size_t size = value.arr_size();
  for (size_t i = 0; i < size; i++) {
    if (value[i].get_type() != REDIS_REPLY_TYPE_STRING) return EBADMSG;
  }
  if (size == 0 || value[0].string_view()->empty()) return EBADMSG;
  command_ = *value[0].string_view();
  params_.clear();
  params_.reserve(size - 1);
  for (size_t i = 1; i < size; i++) {
    params_.push_back(*value[i].string_view());
  }
  return 0;
}

RedisResponse::RedisResponse(RedisResponse&& message) noexcept
    : RedisMessage(std::move(message)),
      value_(std::move(message.value_)),
      has_value_(std::exchange(message.has_value_, false)) {}

RedisResponse& RedisResponse::operator=(RedisResponse&& message) noexcept {
  if (this != &message) {
    value_ = std::move(message.value_);
    has_value_ = std::exchange(message.has_value_, false);
    RedisMessage::operator=(std::move(message));
  }
  return *this;
}

bool RedisResponse::get_result(RedisValue& value) const {
  value = value_;
  return has_value_;
}

bool RedisResponse::set_result(const RedisValue& value) {
  value_ = value;
  has_value_ = true;
  return true;
}

bool RedisResponse::set_result(RedisValue&& value) {
  value_ = std::move(value);
  has_value_ = true;
  return true;
}

int RedisResponse::encode(struct iovec vectors[], int max) {
  return encode_into(encoded_, vectors, max, [this] { workflow::append_value(&encoded_, value_); });
}

int RedisResponse::received(RedisValue&& value) {
  value_ = std::move(value);
  has_value_ = true;
  return 0;
}

}  // namespace protocol

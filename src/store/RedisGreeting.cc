#include "store/RedisGreeting.h"

#include <cerrno>
#include <new>

#include "store/RedisParser.h"
#include "store/RedisUrl.h"
#include "store/RedisWire.h"
#include "workflow/WFTaskError.h"

namespace workflow {

using protocol::RedisValue;

namespace {

// Whether the error says only that the server is busy or is loading its data.
bool is_transient(const std::string& text) {
  for (const char* const code : {"BUSY ", "LOADING ", "MASTERDOWN ", "CLUSTERDOWN "}) {
    if (text.starts_with(code)) return true;
  }
  return false;
}

// How a login fails by such a reply; 0: it does not.
int login_refusal(const RedisValue& reply) {
  if (reply.is_ok()) return 0;
  const std::string& text = *reply.string_view();
  if (is_transient(text)) return EAGAIN;
  return text.starts_with("ERR max number of clients") ? ECONNREFUSED
                                                       : int{WFT_ERR_REDIS_ACCESS_DENIED};
}

// The replies to a greeting.
class Answer final : public protocol::ProtocolMessage {
 public:
  Answer(int logins, bool asks_role) : logins_(logins), asks_role_(asks_role) {}

  int append(const void* buffer, size_t* size) override {
    if (const int error = parser_.feed(buffer, *size)) return fail(error);
    while (logins_ > 0 || asks_role_) {
      RedisValue value;
      switch (parser_.next(kMaxReply, &value)) {
        case RedisParser::Result::kMore:
          return 0;
        case RedisParser::Result::kRefused:
          return fail(parser_.error());
        case RedisParser::Result::kValue:
          break;
      }
      if (const int error = check(value)) return fail(error);
    }
    *size -= parser_.unparsed_bytes();
    return 1;
  }
  using ProtocolMessage::append;

 private:
  static constexpr size_t kMaxReply = size_t{64} * 1024;

  static int fail(int error) {
    errno = error;
    return -1;
  }

  int check(const RedisValue& value) {
    if (logins_ > 0) {
      logins_--;
      return login_refusal(value);
    }
    asks_role_ = false;
    if (value.is_error() && is_transient(*value.string_view())) return EAGAIN;
    // A user may lack the right to ask. The first command will show whether this is a master.
    const bool may_be_master =
        value.is_error() || (value.arr_size() > 0 && value[0].string_value() == "master");
    return may_be_master ? 0 : int{WFT_ERR_UPSTREAM_UNAVAILABLE};
  }

  RedisParser parser_;
  int logins_;
  bool asks_role_;
};

}  // namespace

RedisGreeting::RedisGreeting(const RedisUrl& url) : asks_role_(!url.sentinels.empty()) {
  if (url.logs_in) {
    if (url.user.empty()) {
      append_command(&bytes_, {"AUTH", url.password});
    } else {
      append_command(&bytes_, {"AUTH", url.user, url.password});
    }
    logins_++;
  }
  if (url.db != 0) {
    append_command(&bytes_, {"SELECT", std::to_string(url.db)});
    logins_++;
  }
  if (asks_role_) {
    append_command(&bytes_, {"ROLE"});
  }
}

std::shared_ptr<const RedisGreeting> RedisGreeting::of(const RedisUrl& url) {
  auto greeting = std::make_shared<const RedisGreeting>(url);
  return greeting->bytes().empty() ? nullptr : greeting;
}

std::unique_ptr<protocol::ProtocolMessage> RedisGreeting::new_answer() const {
  try {
    return std::make_unique<Answer>(logins_, asks_role_);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace workflow

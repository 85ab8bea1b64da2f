#include "store/RedisParser.h"

#include <hiredis/hiredis.h>
#include <hiredis/read.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace workflow {

using protocol::RedisValue;

// The reader's stack and the types of its functions are others from 1.0 on.
static_assert(HIREDIS_MAJOR == 0, "RedisParser is written for the reader of hiredis 0.14");

struct RedisParser::Builder {
  static RedisParser& parser_of(const redisReadTask* task) {
    return *static_cast<RedisParser*>(task->privdata);
  }

  static void* refuse(const redisReadTask* task, int error) {
    parser_of(task).error_ = error;
    return nullptr;
  }

  // Calls `fill` for the place of the value. Returns null, which makes the reader stop, if the
  // value is refused.
  template <class FILL>
  static void* make(const redisReadTask* task, FILL fill) {
    RedisParser& parser = parser_of(task);
    try {
      RedisValue* const value = parser.place(task);
      if (value) {
        fill(*value);
      }
      return value;
    } catch (const std::bad_alloc&) {
      return refuse(task, ENOMEM);
    }
  }

  static void* make_string(const redisReadTask* task, char* text, size_t size) {
    if (task->type != REDIS_REPLY_STRING && size > kMaxLine) return refuse(task, EMSGSIZE);
    // The reader does not look at the two bytes behind a bulk string. They have arrived.
    if (task->type == REDIS_REPLY_STRING && std::memcmp(text + size, "\r\n", 2) != 0) {
      return refuse(task, EBADMSG);
    }
    return make(task, [&](RedisValue& value) { value.set_text(task->type, text, size); });
  }
  static void* make_array(const redisReadTask* task, int elements) {
    const auto count = static_cast<size_t>(elements);
    if (!parser_of(task).allows_array(count)) return refuse(task, EMSGSIZE);
    return make(task, [count](RedisValue& value) {
      value.arr_clear();
      std::get<RedisValue::Array>(value.content_).reserve(std::min(count, kReserved));
    });
  }
  static void* make_integer(const redisReadTask* task, long long number) {
    return make(task, [number](RedisValue& value) { value.set_int(number); });
  }
  static void* make_nil(const redisReadTask* task) {
    return make(task, [](RedisValue& value) { value.set_nil(); });
  }
  // The parser owns the values.
  static void free_nothing(void*) {}

  static redisReplyObjectFunctions functions_;
};

redisReplyObjectFunctions RedisParser::Builder::functions_ = {
    &Builder::make_string, &Builder::make_array, &Builder::make_integer, &Builder::make_nil,
    &Builder::free_nothing};

static_assert(REDIS_REPLY_TYPE_STRING == REDIS_REPLY_STRING &&
              REDIS_REPLY_TYPE_STATUS == REDIS_REPLY_STATUS &&
              REDIS_REPLY_TYPE_ERROR == REDIS_REPLY_ERROR);

void RedisParser::Free::operator()(redisReader* reader) const {
  ::redisReaderFree(reader);
}

RedisParser::RedisParser() : reader_(::redisReaderCreateWithFunctions(&Builder::functions_)) {
  if (!reader_) {
    throw std::bad_alloc();
  }
  reader_->privdata = this;
}

RedisParser::~RedisParser() = default;

int RedisParser::feed(const void* bytes, size_t size) {
  if (size == 0) return 0;
  if (::redisReaderFeed(reader_.get(), static_cast<const char*>(bytes), size) != REDIS_OK) {
    return ENOMEM;
  }
  fed_ += size;
  return 0;
}

size_t RedisParser::unparsed_bytes() const {
  return reader_->len - reader_->pos;
}

RedisParser::Result RedisParser::refuse(int error) {
  error_ = error;
  return Result::kRefused;
}

RedisParser::Result RedisParser::next(size_t limit, RedisValue* value) {
  if (error_ != 0) return Result::kRefused;
  limit_ = limit;
  void* reply = nullptr;
  if (::redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    return refuse(error_ != 0 ? error_ : reader_->err == REDIS_ERR_OOM ? ENOMEM : EBADMSG);
  }
  if (!reply) {
    const int refusal = check_pending();
    return refusal == 0 ? Result::kMore : refuse(refusal);
  }
  if (value_bytes() > limit_) return refuse(EMSGSIZE);
  fed_ = unparsed_bytes();
  memory_ = 0;
  *value = std::move(root_);
  return Result::kValue;
}

int RedisParser::check_pending() const {
  if (fed_ > limit_) return EMSGSIZE;
  if (reader_->ridx < 0) return 0;
  const std::string_view rest(reader_->buf + reader_->pos, unparsed_bytes());
  const int type = reader_->rstack[reader_->ridx].type;
  if (type == REDIS_REPLY_STATUS || type == REDIS_REPLY_ERROR) {
    return rest.size() > kMaxLine + 2 ? EMSGSIZE : 0;
  }
  if (type < 0) {
    return 0;  // not even the first byte of an item has come
  }
  const size_t end = rest.substr(0, kMaxNumber).find("\r\n");
  if (end == std::string_view::npos) return rest.size() >= kMaxNumber ? EBADMSG : 0;
  if (type != REDIS_REPLY_STRING) return 0;
  size_t length = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + end, length);
  if (parsed.ec != std::errc() || parsed.ptr != rest.data() + end) {
    return 0;  // the reader will refuse it
  }
  const size_t head = value_bytes() + end + 2;
  return head > limit_ || length > limit_ - head ? EMSGSIZE : 0;
}

bool RedisParser::allows_array(size_t elements) const {
  const size_t taken = value_bytes();
  return taken <= limit_ && elements <= (limit_ - taken) / kMinElementBytes;
}

RedisValue* RedisParser::place(const redisReadTask* task) {
  if (!task->parent) return &root_;
  memory_ += sizeof(RedisValue);
  if (memory_ > std::max(limit_, kFreeMemory)) {
    error_ = EMSGSIZE;
    return nullptr;
  }
  return &std::get<RedisValue::Array>(static_cast<RedisValue*>(task->parent->obj)->content_)
              .emplace_back();
}

}  // namespace workflow

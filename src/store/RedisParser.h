#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "workflow/RedisMessage.h"

struct redisReadTask;
struct redisReader;

namespace workflow {

// Turns received bytes into values. hiredis' reader knows the grammar; this class makes the values,
// and refuses what is too large before memory is taken for it.
//
// Belongs to a message or a connection. Not thread-safe.
//
// Invariants:
// 1. A length that the peer announces allocates nothing, except kReserved elements for each of the
//    open arrays, of which there are eight at most. Everything else grows with what has arrived.
// 2. `task->obj` of an open array points to its value. That stays where it is, because the array in
//    which it lies does not grow before it is complete.
// 3. After a refusal nothing is parsed any more.
class RedisParser {
 public:
  RedisParser();
  ~RedisParser();
  RedisParser(const RedisParser&) = delete;
  RedisParser& operator=(const RedisParser&) = delete;

  // Takes bytes. Returns 0, or ENOMEM.
  int feed(const void* bytes, size_t size);

  enum class Result { kMore, kValue, kRefused };
  // Parses what feed() has taken, up to the end of the next value. `limit`: how large a value may
  // be (see RedisMessage). After kRefused error() says why.
  Result next(size_t limit, protocol::RedisValue* value);

  // The errno value of a refusal: EBADMSG, EMSGSIZE or ENOMEM.
  int error() const { return error_; }
  // How many bytes have been taken that are not part of a value that next() has returned, or of the
  // value that it is parsing.
  size_t unparsed_bytes() const;

 private:
  struct Free {
    void operator()(redisReader* reader) const;
  };
  // The functions that the reader calls.
  struct Builder;

  static constexpr size_t kMaxLine = size_t{64} * 1024;
  static constexpr size_t kMaxNumber = 32;  // the longest line that can be a number
  static constexpr size_t kReserved = 64;
  static constexpr size_t kFreeMemory = size_t{64} * 1024;
  static constexpr size_t kMinElementBytes = 3;  // "+\r\n"

  Result refuse(int error);
  // Looks at an item that is not whole yet. Returns 0, or why it is refused already.
  int check_pending() const;
  size_t value_bytes() const { return fed_ - unparsed_bytes(); }
  // The place of the value that the reader has found. Null if it is refused.
  protocol::RedisValue* place(const redisReadTask* task);
  bool allows_array(size_t elements) const;

  const std::unique_ptr<redisReader, Free> reader_;
  protocol::RedisValue root_;
  size_t fed_ = 0;     // bytes since the end of the last value
  size_t memory_ = 0;  // of the elements of the value that is being parsed
  size_t limit_ = SIZE_MAX;
  int error_ = 0;
};

}  // namespace workflow

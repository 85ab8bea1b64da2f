#pragma once

#include <stddef.h>

#include <utility>

namespace protocol {

// A piece of a body: bytes that it owns, or that somebody else keeps for as long as he says.
// Not thread-safe. Movable; what is moved from has none.
class HttpMessageChunk {
 public:
  // False, null and 0 when it has none.
  bool get_chunk_data(const void **data, size_t *size) const;

  // Hands the bytes over, copied if they are not its own: the caller gives them to free(3). False
  // with errno: ENOENT when it has none, ENOMEM.
  bool move_chunk_data(void **data, size_t *size);

  // Copies. False with errno ENOMEM; it keeps what it had then.
  bool set_chunk_data(const void *data, size_t size);

  HttpMessageChunk() = default;
  HttpMessageChunk(HttpMessageChunk &&chunk) noexcept
      : data_(std::exchange(chunk.data_, nullptr)),
        size_(std::exchange(chunk.size_, 0)),
        owned_(std::exchange(chunk.owned_, nullptr)) {}
  HttpMessageChunk &operator=(HttpMessageChunk &&chunk) noexcept {
    if (this != &chunk) {
      refer_to(std::exchange(chunk.data_, nullptr), std::exchange(chunk.size_, 0));
      owned_ = std::exchange(chunk.owned_, nullptr);
    }
    return *this;
  }
  ~HttpMessageChunk();

  // --- For the layers that receive; not for users. ---

  // Bytes that it does not own; null: none.
  void refer_to(const void *data, size_t size);

 private:
  const void *data_ = nullptr;
  size_t size_ = 0;
  void *owned_ = nullptr;  // null, or data_
};

}  // namespace protocol

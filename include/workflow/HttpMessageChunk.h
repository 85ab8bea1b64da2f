#pragma once

#include <stddef.h>

#include <utility>

namespace protocol {

// A piece of a body. It either owns its bytes, or refers to bytes that another object keeps for a
// stated time. Not thread-safe. Movable; a moved-from chunk has no bytes.
class HttpMessageChunk {
 public:
  // Returns the bytes. False, null and 0 if there are none.
  bool get_chunk_data(const void **data, size_t *size) const;

  // Transfers the bytes to the caller, who must release them with free(3). They are copied if the
  // chunk does not own them. False with errno: ENOENT if there are none, ENOMEM.
  bool move_chunk_data(void **data, size_t *size);

  // Stores a copy of the bytes. False with errno ENOMEM; the chunk is then unchanged.
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

  // Makes the chunk refer to bytes that it does not own. Null: none.
  void refer_to(const void *data, size_t size);

 private:
  const void *data_ = nullptr;
  size_t size_ = 0;
  void *owned_ = nullptr;  // null, or data_
};

}  // namespace protocol

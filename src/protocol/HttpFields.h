#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace protocol {

// The header fields of a message in order, as views into text that somebody else keeps alive. A few
// fields fit without an allocation. Not thread-safe.
class HttpFields {
 public:
  // Invariant: the text does not move while the field is listed.
  struct Field {
    const char* name;
    const char* value;
    uint32_t name_size;
    uint32_t value_size;

    std::string_view name_view() const { return {name, name_size}; }
    std::string_view value_view() const { return {value, value_size}; }
  };

  static constexpr size_t kNotFound = SIZE_MAX;

  HttpFields() = default;
  HttpFields(const HttpFields&) = delete;
  HttpFields& operator=(const HttpFields&) = delete;

  size_t size() const { return size_; }
  const Field* begin() const { return data(); }
  const Field* end() const { return data() + size_; }
  const Field& operator[](size_t index) const { return data()[index]; }
  Field& operator[](size_t index) { return data()[index]; }

  // Returns false when memory is exhausted.
  bool add(const Field& field);
  void erase(size_t index);
  void clear() { size_ = 0; }

  // Returns the index of the first field of that name from the index `from` on, or kNotFound.
  // Ignores case. O(n).
  size_t find(std::string_view name, size_t from = 0) const;

 private:
  static constexpr size_t kInline = 8;

  Field* data() { return more_ ? more_.get() : inline_; }
  const Field* data() const { return more_ ? more_.get() : inline_; }
  bool grow();

  size_t size_ = 0;
  size_t capacity_ = kInline;
  std::unique_ptr<Field[]> more_;
  Field inline_[kInline];
};

}  // namespace protocol

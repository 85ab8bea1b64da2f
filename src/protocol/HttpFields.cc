#include "protocol/HttpFields.h"

#include <algorithm>
#include <new>

#include "protocol/HttpGrammar.h"

namespace protocol {

bool HttpFields::grow() {
  std::unique_ptr<Field[]> larger(new (std::nothrow) Field[capacity_ * 2]);
  if (!larger) return false;
  std::copy(begin(), end(), larger.get());
  more_ = std::move(larger);
  capacity_ *= 2;
  return true;
}

bool HttpFields::add(const Field& field) {
  if (size_ == capacity_ && !grow()) return false;
  data()[size_++] = field;
  return true;
}

void HttpFields::erase(size_t index) {
  std::copy(begin() + index + 1, end(), data() + index);
  --size_;
}

size_t HttpFields::find(std::string_view name, size_t from) const {
  for (size_t i = from; i < size_; ++i) {
    if (equal_ignoring_case((*this)[i].name_view(), name)) return i;
  }
  return kNotFound;
}

}  // namespace protocol

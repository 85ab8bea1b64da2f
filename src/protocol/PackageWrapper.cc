#include "workflow/PackageWrapper.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

namespace protocol {

namespace {

// How many vectors one message of a package gets. A message that needs more merges its own.
constexpr int kVectorsEach = 64;

void merge_tail(const std::vector<iovec>& all, size_t first, std::string* merged) {
  size_t size = 0;
  for (size_t i = first; i < all.size(); ++i)
    size += all[i].iov_len;
  merged->clear();
  merged->reserve(size);
  for (size_t i = first; i < all.size(); ++i) {
    merged->append(static_cast<const char*>(all[i].iov_base), all[i].iov_len);
  }
}

}  // namespace

PackageWrapper::PackageWrapper(PackageWrapper&& wrapper) noexcept
    : ProtocolWrapper(std::move(wrapper)) {
  take_content_of(wrapper);
}

PackageWrapper& PackageWrapper::operator=(PackageWrapper&& wrapper) noexcept {
  if (this != &wrapper) {
    take_content_of(wrapper);
    ProtocolWrapper::operator=(std::move(wrapper));
  }
  return *this;
}

void PackageWrapper::take_content_of(PackageWrapper& wrapper) noexcept {
  receiving_ = std::exchange(wrapper.receiving_, nullptr);
  received_ = std::exchange(wrapper.received_, 0);
  completed_ = std::exchange(wrapper.completed_, 0);
  complete_ = std::exchange(wrapper.complete_, false);
  merged_.clear();
  wrapper.merged_.clear();
}

int PackageWrapper::encode(struct iovec vectors[], int max) {
  int used = ProtocolWrapper::encode(vectors, max);
  if (used < 0) return -1;
  ProtocolMessage* next = next_out(message);
  if (next == nullptr) return used;
  try {
    std::vector<iovec> all(vectors, vectors + used);
    for (; next != nullptr; next = next_out(next)) {
      iovec some[kVectorsEach];
      int count = next->encode(some, kVectorsEach);
      if (count < 0) return -1;
      all.insert(all.end(), some, some + count);
    }
    size_t room = static_cast<size_t>(max);
    if (all.size() > room) {
      merge_tail(all, room - 1, &merged_);
      all.resize(room);
      all.back() = {merged_.data(), merged_.size()};
    }
    std::copy(all.begin(), all.end(), vectors);
    return static_cast<int>(all.size());
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

int PackageWrapper::append(const void* buf, size_t* size) {
  if (message == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const char* data = static_cast<const char*>(buf);
  size_t taken = 0;
  if (receiving_ == nullptr) receiving_ = message;
  while (!complete_) {
    size_t count = *size - taken;
    int result =
        append_to(receiving_, data + taken, &count, size_limit - std::min(size_limit, completed_));
    if (result < 0) return -1;
    // The message is not complete, so all of the input was taken.
    if (result == 0) count = *size - taken;
    taken += count;
    received_ += count;
    if (received_ > size_limit) {
      errno = EMSGSIZE;
      return -1;
    }
    if (result == 0) return 0;
    completed_ = received_;
    ProtocolMessage* next = next_in(receiving_);
    complete_ = next == nullptr;
    if (!complete_) receiving_ = next;
    // The rest is the beginning of the next message. If there is no rest, that message waits for
    // more bytes.
    if (!complete_ && taken == *size) return 0;
  }
  *size = taken;
  return 1;
}

int PackageWrapper::end_of_input() {
  if (complete_) return 1;
  ProtocolMessage* last = receiving_ != nullptr ? receiving_ : message;
  if (last != nullptr && last->end_of_input() < 0) return -1;
  complete_ = last != nullptr && next_in(last) == nullptr;
  if (complete_) return 1;
  errno = ECONNRESET;
  return -1;
}

ProtocolMessage* PackageWrapper::next_out(ProtocolMessage*) {
  return nullptr;
}

ProtocolMessage* PackageWrapper::next_in(ProtocolMessage*) {
  return nullptr;
}

}  // namespace protocol

#include "workflow/SSLWrapper.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace protocol {

namespace {

// The largest content of a record, RFC 8446, 5.1.
constexpr size_t kRecordSize = size_t{16} * 1024;
constexpr int kVectors = 64;

int fail(int error) {
  errno = error;
  return -1;
}

bool is_memory(BIO* bio) {
  return BIO_method_type(bio) == BIO_TYPE_MEM;
}

// Returns false and sets errno if the SSL cannot be used here.
bool use_memory_bios(SSL* ssl) {
  BIO* in = SSL_get_rbio(ssl);
  BIO* out = SSL_get_wbio(ssl);
  if (in == nullptr && out == nullptr) {
    ERR_clear_error();
    in = BIO_new(BIO_s_mem());
    out = BIO_new(BIO_s_mem());
    if (in == nullptr || out == nullptr) {
      BIO_free(in);
      BIO_free(out);
      errno = ENOMEM;
      return false;
    }
    SSL_set_bio(ssl, in, out);
  }
  if (in == nullptr || out == nullptr || in == out || !is_memory(in) || !is_memory(out)) {
    errno = EINVAL;
    return false;
  }
  // Having no more bytes at the moment is not the end.
  BIO_set_mem_eof_return(in, -1);
  return true;
}

// Judges a call on `ssl` that has returned `result`. Returns 0 if the call only needs more bytes,
// or else -1 with errno.
int result_of(SSL* ssl, int result) {
  switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_WANT_READ:
      return 0;
    case SSL_ERROR_ZERO_RETURN:
    case SSL_ERROR_SYSCALL:
      return fail(ECONNRESET);
    default:
      return fail(ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE ? ENOMEM : EBADMSG);
  }
}

// Returns 1 when the handshake is done, 0 when more bytes are needed, or -1 with errno.
int handshake(SSL* ssl, bool speaks_first) {
  ERR_clear_error();
  int result = SSL_do_handshake(ssl);
  if (result < 0 && ERR_GET_REASON(ERR_peek_error()) == SSL_R_CONNECTION_TYPE_NOT_SET) {
    ERR_clear_error();
    if (speaks_first) {
      SSL_set_connect_state(ssl);
    } else {
      SSL_set_accept_state(ssl);
    }
    result = SSL_do_handshake(ssl);
  }
  return result == 1 ? 1 : result_of(ssl, result);
}

int feed(SSL* ssl, const void* data, size_t size) {
  ERR_clear_error();
  size_t written;
  return BIO_write_ex(SSL_get_rbio(ssl), data, size, &written) == 1 ? 0 : fail(ENOMEM);
}

// Moves the bytes that have to be sent into `output`.
int take_output(SSL* ssl, std::string* output, struct iovec vectors[], int max) {
  BIO* out = SSL_get_wbio(ssl);
  size_t size = BIO_ctrl_pending(out);
  output->clear();
  if (size == 0) return 0;
  if (max < 1) return fail(EINVAL);
  try {
    output->resize(size);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  ERR_clear_error();
  BIO_read_ex(out, output->data(), size, &size);
  vectors[0] = {output->data(), size};
  return 1;
}

// Drops the first `size` of the bytes that have to be sent.
void drop_output(BIO* out, size_t size) {
  char dropped[1024];
  size_t count = 0;
  while (size > 0 && BIO_read_ex(out, dropped, std::min(size, sizeof dropped), &count) == 1)
    size -= count;
}

// Passes the bytes that have to be sent to `write`, which is a feedback().
template <class Write>
int write_output(SSL* ssl, Write write) {
  ERR_clear_error();
  BIO* out = SSL_get_wbio(ssl);
  char* data = nullptr;
  long size = BIO_get_mem_data(out, &data);
  if (size <= 0) return 0;
  int written = write(data, static_cast<size_t>(size));
  if (written < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  drop_output(out, static_cast<size_t>(written));
  return 0;
}

}  // namespace

size_t TLSRecordBoundary::next(const unsigned char* data, size_t size) {
  size_t count = 0;
  if (left_ == 0) {
    count = std::min(size, kHeadSize - head_size_);
    std::memcpy(head_ + head_size_, data, count);
    head_size_ += count;
    if (head_size_ < kHeadSize) return count;
    // Type, version (two bytes), length (two bytes).
    left_ = static_cast<size_t>(head_[3]) << 8 | head_[4];
    head_size_ = 0;
  }
  size_t content = std::min(size - count, left_);
  left_ -= content;
  return count + content;
}

int SSLHandshaker::encode(struct iovec vectors[], int max) {
  if (!use_memory_bios(ssl_) || handshake(ssl_, true) < 0) return -1;
  return take_output(ssl_, &output_, vectors, max);
}

int SSLHandshaker::append(const void* buf, size_t* size) {
  if (!use_memory_bios(ssl_)) return -1;
  const auto* data = static_cast<const unsigned char*>(buf);
  size_t taken = 0;
  while (!SSL_is_init_finished(ssl_)) {
    if (taken == *size) return 0;
    size_t count = boundary_.next(data + taken, *size - taken);
    if (feed(ssl_, data + taken, count) < 0) return -1;
    taken += count;
    int result = handshake(ssl_, false);
    int error = errno;
    int written = write_output(
        ssl_, [this](const char* bytes, size_t length) { return feedback(bytes, length); });
    if (result < 0) return fail(error);
    if (written < 0) return -1;
  }
  *size = taken;
  return 1;
}

int SSLWrapper::encode(struct iovec vectors[], int max) {
  struct iovec plain[kVectors];
  if (!use_memory_bios(ssl_)) return -1;
  int count = ProtocolWrapper::encode(plain, kVectors);
  if (count < 0 || encrypt(plain, count) < 0) return -1;
  return take_output(ssl_, &output_, vectors, max);
}

// Small pieces share a record, because each record costs about 30 bytes and its own encryption.
int SSLWrapper::encrypt(const struct iovec vectors[], int count) {
  char record[kRecordSize];
  size_t filled = 0;
  auto write = [this](const char* bytes, size_t size) {
    size_t written = 0;
    for (; size > 0; size -= written, bytes += written) {
      ERR_clear_error();
      int result = SSL_write_ex(ssl_, bytes, size, &written);
      // The call needs bytes from the peer, so the handshake is not complete.
      if (result != 1) return result_of(ssl_, result) < 0 ? -1 : fail(ENOTCONN);
    }
    return 0;
  };
  if (SSL_in_before(ssl_)) return fail(ENOTCONN);
  for (int i = 0; i < count; ++i) {
    const char* bytes = static_cast<const char*>(vectors[i].iov_base);
    size_t left = vectors[i].iov_len;
    while (left > 0) {
      if (filled == 0 && left >= kRecordSize) {
        size_t whole = left - left % kRecordSize;
        if (write(bytes, whole) < 0) return -1;
        bytes += whole;
        left -= whole;
        continue;
      }
      size_t step = std::min(left, kRecordSize - filled);
      std::memcpy(record + filled, bytes, step);
      filled += step;
      bytes += step;
      left -= step;
      if (filled == kRecordSize) {
        if (write(record, filled) < 0) return -1;
        filled = 0;
      }
    }
  }
  return write(record, filled);
}

int SSLWrapper::append(const void* buf, size_t* size) {
  if (SSL_in_before(ssl_)) return fail(ENOTCONN);
  return receive(buf, size);
}

int ServerSSLWrapper::append(const void* buf, size_t* size) {
  if (SSL_in_before(get_ssl())) SSL_set_accept_state(get_ssl());
  return receive(buf, size);
}

int SSLWrapper::receive(const void* buf, size_t* size) {
  if (message == nullptr) return fail(EINVAL);
  if (!use_memory_bios(ssl_)) return -1;
  const auto* data = static_cast<const unsigned char*>(buf);
  size_t taken = 0;
  for (;;) {
    // This comes before the first bytes, because the SSL may already hold the beginning of this
    // message.
    int result = decrypt();
    // The end of TLS is the end of the message's input.
    if (result < 0 && SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN && errno == ECONNRESET) {
      result = ProtocolWrapper::end_of_input();
    }
    int error = errno;
    int written = write_pending();
    if (result < 0) return fail(error);
    if (written < 0) return -1;
    if (result > 0 || taken == *size) {
      *size = taken;
      return result;
    }
    size_t count = boundary_.next(data + taken, *size - taken);
    if (feed(ssl_, data + taken, count) < 0) return -1;
    taken += count;
  }
}

// Passes what can be decrypted to the wrapped message. What that does not take stays in the SSL.
int SSLWrapper::decrypt() {
  char plain[kRecordSize];
  for (;;) {
    ERR_clear_error();
    size_t size = 0;
    int result = SSL_peek_ex(ssl_, plain, sizeof plain, &size);
    if (result != 1) return result_of(ssl_, result);
    size_t taken = size;
    int appended = append_to(message, plain, &taken, size_limit);
    if (appended < 0) return -1;
    if (appended == 0) taken = size;
    ERR_clear_error();
    if (taken > 0 && SSL_read_ex(ssl_, plain, taken, &size) != 1) return fail(EBADMSG);
    if (appended > 0) return 1;
  }
}

int SSLWrapper::write_pending() {
  return write_output(ssl_, [this](const char* bytes, size_t length) {
    return ProtocolWrapper::feedback(bytes, length);
  });
}

int SSLWrapper::end_of_input() {
  return fail(ECONNRESET);
}

int SSLWrapper::feedback(const void* buf, size_t size) {
  struct iovec plain = {const_cast<void*>(buf), size};
  if (!use_memory_bios(ssl_) || encrypt(&plain, 1) < 0 || write_pending() < 0) return -1;
  return static_cast<int>(size);
}

}  // namespace protocol

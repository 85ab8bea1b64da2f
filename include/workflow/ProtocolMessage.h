#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <utility>

namespace protocol {

// Where a message being received writes back at once (an interim answer, an acknowledgement).
// Implemented by the connection, which outlives the messages it installs itself in.
class MessageChannel {
 public:
  // Writes `size` bytes towards the peer without waiting for the message to end. Returns the
  // number of bytes taken, or -1 with errno.
  virtual int write_now(const void *buf, size_t size) = 0;

  // The message begins anew: its receive time limit starts again. Does nothing by default.
  virtual void restart_receive() {}

 protected:
  ~MessageChannel() = default;
};

// The base of every message of every protocol: bytes in by append(), bytes out by encode().
//
// Ownership: by whoever creates it; an attachment belongs to the message. Not thread-safe: one
// thread at a time. Movable, not copyable; what is moved from is empty and usable again. The
// channel belongs to the place where a message lives (a task on a connection), not to its
// content, so moving leaves both channels where they are.
class ProtocolMessage {
 public:
  // Describes the whole message in at most `max` vectors and returns how many were used, -1 with
  // errno on failure. What the vectors point to stays valid until the message is changed, moved
  // from, encoded again or destroyed.
  virtual int encode(struct iovec vectors[], int max);

  // Takes received bytes. Returns 1 when the message is complete, 0 when more bytes are wanted,
  // -1 with errno on error. In the first form `*size` is set to the number of bytes that belong
  // to this message; it is meaningful with a return of 1. In the second form, a completed message
  // must end where the bytes end. A message overrides one of the two: each calls the other by
  // default, and a message that overrides neither fails with ENOSYS.
  virtual int append(const void *buf, size_t *size);
  virtual int append(const void *buf, size_t size);

  // The peer will send no more. Returns 1 when that completes the message, as some protocols end
  // one with the connection, -1 with errno otherwise: by default, ECONNRESET.
  virtual int end_of_input();

  // Writes bytes back to the peer while the message is being received, only from within append().
  // Returns the number of bytes taken or -1 with errno; ENOTCONN when there is no connection.
  virtual int feedback(const void *buf, size_t size);

  // Says, from within append(), that what came so far was whole in itself, such as an interim
  // message: the time limits for receiving start again. Nothing happens when there is no
  // connection.
  virtual void renew();

  // The largest message accepted by append(), in bytes; without limit by default.
  void set_size_limit(size_t limit) { size_limit = limit; }
  size_t get_size_limit() const { return size_limit; }

  // Something of the user's that lives and dies with the message.
  class Attachment {
   public:
    virtual ~Attachment() = default;
  };

  // Takes ownership; the former attachment is deleted.
  void set_attachment(Attachment *attachment) {
    if (attachment != attachment_) delete attachment_;
    attachment_ = attachment;
  }
  Attachment *get_attachment() const { return attachment_; }

  // Internal: installed by the connection for as long as it receives into this message.
  void set_channel(MessageChannel *channel) { channel_ = channel; }
  MessageChannel *get_channel() const { return channel_; }

  ProtocolMessage() = default;
  virtual ~ProtocolMessage() { delete attachment_; }

  ProtocolMessage(ProtocolMessage &&message) noexcept
      : size_limit(std::exchange(message.size_limit, SIZE_MAX)),
        attachment_(std::exchange(message.attachment_, nullptr)) {}

  ProtocolMessage &operator=(ProtocolMessage &&message) noexcept {
    if (this != &message) {
      size_limit = std::exchange(message.size_limit, SIZE_MAX);
      delete attachment_;
      attachment_ = std::exchange(message.attachment_, nullptr);
    }
    return *this;
  }

  ProtocolMessage(const ProtocolMessage &) = delete;
  ProtocolMessage &operator=(const ProtocolMessage &) = delete;

 protected:
  size_t size_limit = SIZE_MAX;

 private:
  Attachment *attachment_ = nullptr;
  MessageChannel *channel_ = nullptr;
  // True while one default append() calls the other form; it ends the mutual recursion.
  bool delegating_ = false;
};

// A message around another: what is sent and received is the inner one, as far as a derived class
// does not change it on the way (see PackageWrapper, SSLWrapper). Where a connection takes a
// message, a wrapper puts a layer between the two.
//
// Does not own the wrapped message, which outlives every call of the wrapper. Not thread-safe, and
// one thread at a time for both. Movable: what is moved from wraps nothing, and its encode() and
// append() fail with EINVAL.
//
// While append() runs, the wrapped message's feedback() and renew() are those of the wrapper. The
// smaller of both size limits applies to what is received.
class ProtocolWrapper : public ProtocolMessage {
 public:
  int encode(struct iovec vectors[], int max) override;
  int append(const void *buf, size_t *size) override;
  using ProtocolMessage::append;
  int end_of_input() override;

  const ProtocolMessage *get_message() const { return message; }

  explicit ProtocolWrapper(ProtocolMessage *wrapped) : message(wrapped) {}
  ProtocolWrapper(ProtocolWrapper &&wrapper) noexcept
      : ProtocolMessage(std::move(wrapper)), message(std::exchange(wrapper.message, nullptr)) {}
  ProtocolWrapper &operator=(ProtocolWrapper &&wrapper) noexcept {
    if (this != &wrapper) {
      message = std::exchange(wrapper.message, nullptr);
      ProtocolMessage::operator=(std::move(wrapper));
    }
    return *this;
  }

 protected:
  // Gives received bytes to `inner` as append() says, with this wrapper behind its feedback() and
  // renew() and at most `limit` as its size limit.
  int append_to(ProtocolMessage *inner, const void *buf, size_t *size, size_t limit);

  ProtocolMessage *message;
};

}  // namespace protocol

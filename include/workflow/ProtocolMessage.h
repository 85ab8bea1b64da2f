#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <string_view>
#include <utility>

namespace protocol {

// Lets a message that is being received write to its peer at once (an interim answer, an
// acknowledgement). Implemented by the connection, which must outlive the messages in which it
// installs itself.
class MessageChannel {
 public:
  // Writes `size` bytes to the peer without waiting for the message to end. Returns the number of
  // bytes taken, or -1 with errno.
  virtual int write_now(const void *buf, size_t size) = 0;

  // The message begins anew, so its receive time limit starts again. Does nothing by default.
  virtual void restart_receive() {}

  // Whether a request for a host may come on this connection. `authority` is the host, perhaps with
  // a port, as the request has it, or empty if it names none. HttpRequest asks, if it has a
  // channel. By default every request may come. A channel or message that wraps another one must
  // pass the question on, as ProtocolWrapper does.
  virtual bool serves(std::string_view /*authority*/) { return true; }

 protected:
  ~MessageChannel() = default;
};

// The base of every message of every protocol. append() takes received bytes, encode() returns
// bytes to send.
//
// Ownership: the creator of a message owns it, and the message owns its attachment. Not
// thread-safe: one thread at a time. Movable, not copyable; a moved-from message is empty and
// usable again. The channel belongs to the place where a message lives (a task on a connection),
// not to its content, so a move leaves both channels where they are.
class ProtocolMessage {
 public:
  // Describes the whole message in at most `max` vectors. Returns how many were used, or -1 with
  // errno. The memory of the vectors stays valid until the message is changed, moved from, encoded
  // again or destroyed.
  virtual int encode(struct iovec vectors[], int max);

  // Takes received bytes. Returns 1 if the message is complete, 0 if more bytes are wanted, and -1
  // with errno on error. The first form sets `*size` to the number of bytes that belong to this
  // message, which is meaningful if it returns 1. With the second form, a completed message must
  // end where the bytes end. A message overrides one of the two: each calls the other by default,
  // and a message that overrides neither fails with ENOSYS.
  virtual int append(const void *buf, size_t *size);
  virtual int append(const void *buf, size_t size);

  // Called when the peer will send no more. Returns 1 if that completes the message, as in
  // protocols where the end of the connection ends a message. Otherwise it returns -1 with errno,
  // by default ECONNRESET.
  virtual int end_of_input();

  // Writes bytes to the peer while the message is being received. May only be called within
  // append(). Returns the number of bytes taken, or -1 with errno; ENOTCONN if there is no
  // connection.
  virtual int feedback(const void *buf, size_t size);

  // Called within append() if the bytes so far were complete in themselves, such as an interim
  // message: the time limits for receiving start again. Does nothing if there is no connection.
  virtual void renew();

  // The size in bytes of the largest message that append() accepts. Unlimited by default.
  void set_size_limit(size_t limit) { size_limit = limit; }
  size_t get_size_limit() const { return size_limit; }

  // An object of the user that the message owns and destroys.
  class Attachment {
   public:
    virtual ~Attachment() = default;
  };

  // Takes ownership. The previous attachment is deleted.
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

// A message around another one. What is sent and received is the inner message, except for what a
// derived class changes (see PackageWrapper, SSLWrapper). Wherever a connection takes a message, a
// wrapper can add a layer between the two.
//
// The wrapper does not own the wrapped message, which must outlive every call of the wrapper. Not
// thread-safe: one thread at a time may use the two. Movable: a moved-from wrapper wraps nothing,
// and its encode() and append() fail with EINVAL.
//
// While append() runs, feedback() and renew() of the wrapped message call those of the wrapper, and
// MessageChannel::serves() is asked of the wrapper's channel. The smaller of both size limits
// applies to what is received.
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
  // Passes received bytes to append() of `inner`. Meanwhile feedback() and renew() of `inner` call
  // those of this wrapper, its MessageChannel::serves() is asked of this wrapper's channel, and the
  // size limit of `inner` is at most `limit`.
  int append_to(ProtocolMessage *inner, const void *buf, size_t *size, size_t limit);

  ProtocolMessage *message;
};

}  // namespace protocol

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "workflow/HttpMessageChunk.h"
#include "workflow/ProtocolMessage.h"

namespace protocol {

// One header field. The texts are not null-terminated. A field that is returned to the user points
// into the message. It stays valid until that field is replaced or erased, or the message is
// destroyed.
struct HttpMessageHeader {
  const void *name;
  size_t name_len;
  const void *value;
  size_t value_len;
};

struct HttpLimits;
struct HttpContent;

// What requests and responses have in common: version, header fields, body.
//
// A message can be received and sent: a received message may be changed and sent on. Text returned
// as `const char *` is null-terminated, or null if it is absent. It stays valid until that same
// text is set again or the message is destroyed, whatever else is set. Moving a message keeps these
// pointers valid (they follow the content). Not thread-safe. A message that was never used
// allocates no memory.
//
// Setters return false with errno EINVAL for a null text, and for text that would break the framing
// on the wire: CR, LF or NUL anywhere, a name or method that is not a token, white space in a
// request target. They also fail with ENOMEM. encode() writes what was set and nothing else. The
// task that sends the message adds Content-Length, Connection and the like before that.
class HttpMessage : public ProtocolMessage {
 public:
  const char *get_http_version() const;
  bool get_http_version(std::string &version) const {
    return to_string(get_http_version(), version);
  }
  bool set_http_version(const char *version) { return put_http_version(text_of(version)); }
  bool set_http_version(const std::string &version) { return put_http_version(version); }

  // These depend on the header fields, received or set. is_chunked(): "Transfer-Encoding: chunked".
  // is_keep_alive(): HTTP/1.1 without "Connection: close", or HTTP/1.0 with "Connection:
  // keep-alive".
  bool is_chunked() const;
  bool is_keep_alive() const;

  // The add functions append a field. The set functions replace every field of that name by one.
  // Names match without regard to case. A null header is refused like a null text.
  bool add_header(const struct HttpMessageHeader *header);
  bool set_header(const struct HttpMessageHeader *header);
  bool add_header_pair(const char *name, const char *value) {
    return add_field(text_of(name), text_of(value));
  }
  bool set_header_pair(const char *name, const char *value) {
    return set_field(text_of(name), text_of(value));
  }
  bool add_header_pair(const std::string &name, const std::string &value) {
    return add_field(name, value);
  }
  bool set_header_pair(const std::string &name, const std::string &value) {
    return set_field(name, value);
  }

  // Returns the body of a completely received message. For a chunked message it is the raw body
  // with its chunk framing (see HttpChunkCursor, HttpUtil::decode_chunked_body). False, null and 0
  // if no message was received completely; true, null and 0 if the message has no body.
  bool get_parsed_body(const void **body, size_t *size) const;

  // For a message that did not arrive completely and of which no more will arrive, as in the
  // callback of a task that failed. The part of its body that has arrived then counts as the whole.
  // Has no effect before the header section is complete, or on a body that was passed on as it
  // arrived.
  void end_parsing();

  // The body to send, as a list of blocks. These return false with errno EINVAL for a null text or
  // null bytes of a size other than 0, or with ENOMEM. The nocopy forms keep the caller's pointer,
  // which must stay valid until the message has been sent. A received body may be passed to the
  // nocopy forms of its own message.
  bool append_output_body(const void *buf, size_t size);
  bool append_output_body_nocopy(const void *buf, size_t size);
  bool append_output_body(const char *buf) { return append_output_body(buf, text_of(buf).size()); }
  bool append_output_body_nocopy(const char *buf) {
    return append_output_body_nocopy(buf, text_of(buf).size());
  }
  bool append_output_body(const std::string &buf) {
    return append_output_body(buf.data(), buf.size());
  }
  bool append_output_body_nocopy(const std::string &buf) {
    return append_output_body_nocopy(buf.data(), buf.size());
  }

  size_t get_output_body_size() const;
  // Returns how many blocks it has stored in `buf` and `size`: all of them, but at most `max`.
  size_t get_output_body_blocks(const void *buf[], size_t size[], size_t max) const;
  // `*size` is the size of the buffer on entry and the length of the body on return. False with
  // ENOSPC if the buffer is too small.
  bool get_output_body_merged(void *buf, size_t *size) const;
  bool get_output_body_merged(std::string &body) const;
  void clear_output_body();

  bool is_header_complete() const;
  bool has_connection_header() const;
  bool has_content_length_header() const;
  bool has_keep_alive_header() const;

  // These override ProtocolMessage. encode() merges blocks of the body beyond `max` into the last
  // vector.
  int encode(struct iovec vectors[], int max) override;
  int append(const void *buf, size_t *size) override;
  using ProtocolMessage::append;
  // Returns 1 for a response whose body ends with the connection (RFC 9112, 6.3, rule 8), and for a
  // message that is complete. For any other message it fails with ECONNRESET.
  int end_of_input() override;

  // --- For the layers that receive; not for users. ---

  // Sets the parsing limits. The caller owns them and must keep them alive while it appends. Null
  // means the defaults. They stay with this object when it is moved from or to.
  void set_limits(const HttpLimits *limits) { limits_ = limits; }

  // Whether a byte of the message has arrived. Empty lines before a request do not count.
  bool has_started() const;
  // Whether append() has returned 1.
  bool is_complete() const;
  // Returns how many bytes of the body have arrived so far, chunk framing included.
  size_t get_received_body_size() const;
  // Returns the status with which to refuse the request after append() has returned -1: 400, 413,
  // 414, 417, 421, 431, 501 or 505, or 500 if memory ran out. Returns 0 if there was no error.
  int refusal_status() const;
  HttpContent *content() const { return content_.get(); }

  ~HttpMessage() override;

 protected:
  explicit HttpMessage(bool is_request) noexcept : is_request_(is_request) {}
  HttpMessage(HttpMessage &&message) noexcept;
  HttpMessage &operator=(HttpMessage &&message) noexcept;

  // The parts of the start line, in the order of HttpContent::StartPart.
  const char *get_start_part(int part) const;
  // Fails with EINVAL if the text is not allowed there.
  bool set_start_part(int part, std::string_view text, bool is_allowed);
  // A text that is refused everywhere, one byte of NUL, if there is none.
  static std::string_view text_of(const char *text) {
    return text != nullptr ? std::string_view(text) : std::string_view("", 1);
  }
  static bool to_string(const char *text, std::string &string) {
    if (text == nullptr) return false;
    string.assign(text);
    return true;
  }

  // Called once when the header section is complete and accepted. `rest` bytes of the body have
  // already arrived. Returns 0, or the status with which to refuse the message.
  virtual int header_completed(size_t rest);
  // See HttpResponse.
  bool zero_body_ = false;
  bool is_connect_reply_ = false;
  bool streams_body_ = false;

 private:
  struct ContentDeleter {
    void operator()(HttpContent *content) const;
  };
  HttpContent *use_content();
  bool put_http_version(std::string_view version);
  bool add_field(std::string_view name, std::string_view value);
  bool set_field(std::string_view name, std::string_view value);

  bool is_request_;
  const HttpLimits *limits_ = nullptr;
  std::unique_ptr<HttpContent, ContentDeleter> content_;
};

class HttpRequest : public HttpMessage {
 public:
  const char *get_method() const;
  bool get_method(std::string &method) const { return to_string(get_method(), method); }
  bool set_method(const char *method) { return put_method(text_of(method)); }
  bool set_method(const std::string &method) { return put_method(method); }

  const char *get_request_uri() const;
  bool get_request_uri(std::string &uri) const { return to_string(get_request_uri(), uri); }
  bool set_request_uri(const char *uri) { return put_request_uri(text_of(uri)); }
  bool set_request_uri(const std::string &uri) { return put_request_uri(uri); }

  HttpRequest() noexcept : HttpMessage(true) {}
  HttpRequest(HttpRequest &&) noexcept = default;
  HttpRequest &operator=(HttpRequest &&) noexcept = default;

 protected:
  // Refuses a request for a host that the channel does not serve. Answers "Expect: 100-continue" by
  // feedback() if no byte of the body has arrived. An override that does not call this one does
  // neither: then any request can be sent on the connection of any host.
  int header_completed(size_t rest) override;

 private:
  bool put_method(std::string_view method);
  bool put_request_uri(std::string_view uri);
};

// When a response is received, it begins with the first answer that is not interim: each 1xx but
// 101 is skipped, and the time limit for receiving starts again (renew()). More than 32 interim
// answers are an error. append() fails with EBADMSG if the bytes are not a response or if its end
// is not certain (RFC 9112, 6.3). It fails with EMSGSIZE if the response exceeds the size limit,
// which counts the head and the body without chunk framing, or the limits of a head (HttpLimits.h).
class HttpResponse : public HttpMessage {
 public:
  const char *get_status_code() const;
  bool get_status_code(std::string &code) const { return to_string(get_status_code(), code); }
  bool set_status_code(const char *code) { return put_status_code(text_of(code)); }
  bool set_status_code(const std::string &code) { return put_status_code(code); }

  const char *get_reason_phrase() const;
  bool get_reason_phrase(std::string &phrase) const {
    return to_string(get_reason_phrase(), phrase);
  }
  bool set_reason_phrase(const char *phrase) { return put_reason_phrase(text_of(phrase)); }
  bool set_reason_phrase(const std::string &phrase) { return put_reason_phrase(phrase); }

  // Both say which request the response answers, where that decides about its body (RFC 9112, 6.3).
  // Call them before the first byte.
  //
  // parse_zero_body() is for HEAD: the response has no body, whatever the fields say.
  void parse_zero_body() { zero_body_ = true; }
  // parse_connect_reply() is for CONNECT. With a 2xx status the message ends with its head, and
  // what follows belongs to the tunnel; Content-Length and Transfer-Encoding are ignored then. A
  // response with any other status has its body.
  void parse_connect_reply() { is_connect_reply_ = true; }

  // For the layers that receive; called before the first byte. The body is not stored, but passed
  // on in pieces (HttpReceiver::pieces()); get_parsed_body() then says that there is none. After
  // the head and after each piece the time limit for receiving starts again (renew()).
  void stream_body() { streams_body_ = true; }

  HttpResponse() noexcept : HttpMessage(false) {}
  HttpResponse(HttpResponse &&) noexcept = default;
  HttpResponse &operator=(HttpResponse &&) noexcept = default;

 private:
  bool put_status_code(std::string_view code);
  bool put_reason_phrase(std::string_view phrase);
};

}  // namespace protocol

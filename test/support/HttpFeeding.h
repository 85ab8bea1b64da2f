#pragma once

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "workflow/HttpLimits.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

// Feeds bytes to messages in pieces and reports all that can be seen of the outcome.
namespace http_feeding {

struct Outcome {
  int result = 0;       // of the last append()
  int status = 0;       // refusal_status()
  size_t consumed = 0;  // when complete
  std::string seen;     // start line, fields, raw and decoded body, when complete

  bool operator==(const Outcome& other) const {
    return result == other.result && status == other.status && consumed == other.consumed &&
           seen == other.seen;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << "result " << outcome.result << " status " << outcome.status << " consumed "
             << outcome.consumed << " seen " << outcome.seen;
}

inline std::string text_or(const char* text) {
  return text == nullptr ? "(null)" : text;
}

inline std::string start_of(const protocol::HttpRequest& request) {
  return text_or(request.get_method()) + " " + text_or(request.get_request_uri()) + " " +
         text_or(request.get_http_version());
}

inline std::string start_of(const protocol::HttpResponse& response) {
  return text_or(response.get_http_version()) + " " + text_or(response.get_status_code()) + " " +
         text_or(response.get_reason_phrase());
}

inline std::string body_of(const protocol::HttpMessage& message) {
  const void* body;
  size_t size;
  if (!message.get_parsed_body(&body, &size)) return "(none)";
  return std::string(static_cast<const char*>(body), size);
}

template <class Message>
std::string describe(const Message& message) {
  std::string seen = start_of(message) + "\n";
  protocol::HttpHeaderCursor cursor(&message);
  std::string name, value;
  while (cursor.next(name, value))
    seen += "<" + name + "><" + value + ">\n";
  return seen + body_of(message) + "\n" + protocol::HttpUtil::decode_chunked_body(&message);
}

// Each piece is in a heap block of exactly its size, so that a sanitizer sees a read beyond its
// end.
template <class Message>
Outcome feed_pieces(Message& message, std::string_view bytes, const std::vector<size_t>& cuts) {
  Outcome outcome;
  size_t from = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    size_t to = i < cuts.size() ? cuts[i] : bytes.size();
    size_t size = to - from;
    std::unique_ptr<char[]> piece(new char[size]);
    if (size > 0) std::memcpy(piece.get(), bytes.data() + from, size);
    size_t taken = size;
    outcome.result = message.append(piece.get(), &taken);
    if (outcome.result != 0) {
      outcome.consumed = outcome.result > 0 ? from + taken : 0;
      break;
    }
    from = to;
  }
  outcome.status = message.refusal_status();
  if (outcome.result == 1) outcome.seen = describe(message);
  return outcome;
}

template <class Message>
Outcome feed(std::string_view bytes, const std::vector<size_t>& cuts = {},
             const protocol::HttpLimits* limits = nullptr) {
  Message message;
  message.set_limits(limits);
  return feed_pieces(message, bytes, cuts);
}

inline std::vector<size_t> cut_everywhere(size_t size, size_t step = 1) {
  std::vector<size_t> cuts;
  for (size_t cut = step; cut < size; cut += step)
    cuts.push_back(cut);
  return cuts;
}

// A request with one more field line, or a whole head.
inline std::string with_field(std::string_view field) {
  return "GET / HTTP/1.1\r\nHost: h\r\n" + std::string(field) + "\r\n\r\n";
}

inline std::string with_line(std::string_view line) {
  return std::string(line) + "\r\nHost: h\r\n\r\n";
}

inline std::string chunked(std::string_view body) {
  return "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(body);
}

}  // namespace http_feeding

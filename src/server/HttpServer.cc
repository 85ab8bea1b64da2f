#include <algorithm>
#include <cstdio>
#include <ctime>
#include <new>
#include <string>
#include <string_view>

#include "protocol/HttpContent.h"
#include "protocol/HttpGrammar.h"
#include "protocol/HttpOutput.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"

using protocol::HttpRequest;
using protocol::HttpResponse;
using Protocol = WFServerProtocol<HttpRequest, HttpResponse>;

namespace {

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7) of this second, made once a second per thread.
const char* date_now() {
  static thread_local std::time_t made_at = 0;
  static thread_local char text[32];
  const std::time_t now = std::time(nullptr);
  if (now != made_at) {
    made_at = now;
    struct tm parts;
    ::gmtime_r(&now, &parts);
    // Does not use strftime(3) for the names, because the program may have set another locale.
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char format[48];
    std::snprintf(format, sizeof format, "%s, %%d %s %%Y %%H:%%M:%%S GMT", kDays[parts.tm_wday],
                  kMonths[parts.tm_mon]);
    std::strftime(text, sizeof text, format, &parts);
  }
  return text;
}

// A whole reply without a body, after which the connection closes.
std::string last_answer(int status) {
  const char* phrase = protocol::HttpUtil::get_reason_phrase(status);
  std::string answer = "HTTP/1.1 " + std::to_string(status) + " " + (phrase ? phrase : "") + "\r\n";
  answer.append("Date: ").append(date_now());
  answer.append("\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  return answer;
}

// For calls that fail only when memory has run out: half a reply must not be sent.
void need(bool done) {
  if (!done) throw std::bad_alloc();
}

bool accepts_tunnel(const Protocol::RequestFacts& request, std::string_view status) {
  return request.is_connect && status.size() == 3 && status[0] == '2';
}

// RFC 9110, 6.4.1.
bool has_no_body(const Protocol::RequestFacts& request, std::string_view status) {
  return status == "204" || status == "304" || accepts_tunnel(request, status);
}

void erase_header(HttpResponse* response, const char* name) {
  while (response->content()->fields.find(name) != protocol::HttpFields::kNotFound)
    protocol::HttpHeaderCursor(response).find_and_erase(name);
}

// The data of chunks that the user has written. Ends at the first malformed chunk.
std::string without_framing(std::string_view chunks) {
  constexpr std::string_view kLineEnd = "\r\n";
  std::string body;
  for (;;) {
    const std::string_view line = chunks.substr(0, chunks.find(kLineEnd));
    const auto size = protocol::parse_chunk_size(line.substr(0, line.find(';')));
    chunks.remove_prefix(std::min(line.size() + kLineEnd.size(), chunks.size()));
    if (!size || *size == 0 || *size > chunks.size()) return body;
    body.append(chunks.substr(0, *size));
    chunks.remove_prefix(std::min<size_t>(*size + kLineEnd.size(), chunks.size()));
  }
}

// Removes the chunks: Transfer-Encoding is sent to HTTP/1.1 clients only (RFC 9112, 6.1).
void strip_framing(HttpResponse* response) {
  std::string chunks;
  response->get_output_body_merged(chunks);
  response->clear_output_body();
  need(response->append_output_body(without_framing(chunks)));
  erase_header(response, "Transfer-Encoding");
}

// Whether the client will read the reply as the user meant it (RFC 9112, 6.1): the reply has no
// coding but chunked, and its chunks are complete.
bool is_clearly_framed(const Protocol::RequestFacts& request, const HttpResponse* response) {
  switch (protocol::output_framing(response->content()->fields)) {
    case protocol::OutputFraming::kLength:
      return true;
    case protocol::OutputFraming::kChunked:
      return request.is_head || protocol::is_chunk_framed(response->content()->output);
    default:
      return false;
  }
}

// After an interim status (1xx) a client still waits for the reply, and would take the next reply
// for it (RFC 9110, 15.2). 101 would be final, but there is no other protocol to switch to.
bool is_final(const HttpResponse* response) {
  const char* const status = response->get_status_code();
  return !status || *status != '1';
}

bool has_sendable_head(const HttpResponse* response) {
  return is_final(response) && protocol::is_spoken_version(response->get_http_version());
}

void become_an_error(HttpResponse* response) {
  if (!protocol::is_spoken_version(response->get_http_version()))
    need(response->set_http_version("HTTP/1.1"));
  protocol::HttpUtil::set_response_status(response, HttpStatusInternalServerError);
  response->clear_output_body();
  erase_header(response, "Transfer-Encoding");
  erase_header(response, "Content-Length");
}

// Makes Content-Length right. Removes the body where there must be none (RFC 9110, 8.6), and fields
// that would announce a body in two ways (RFC 9112, 6.1 and 6.2).
void prepare_body(const Protocol::RequestFacts& request, HttpResponse* response) {
  if (!has_sendable_head(response)) become_an_error(response);
  const bool bodiless = has_no_body(request, response->get_status_code());
  if (!bodiless && !is_clearly_framed(request, response)) become_an_error(response);
  const std::string_view status = response->get_status_code();
  if (!bodiless && request.is_http10 && response->is_chunked()) strip_framing(response);
  const size_t size = response->get_output_body_size();
  if (bodiless) {
    erase_header(response, "Transfer-Encoding");
    if (status != "304") erase_header(response, "Content-Length");
  } else if (response->is_chunked()) {
    erase_header(response, "Content-Length");
  } else if (!(request.is_head && response->has_content_length_header() && size == 0)) {
    need(response->set_header_pair("Content-Length", std::to_string(size)));
  }
  if (bodiless || request.is_head) response->clear_output_body();
}

}  // namespace

Protocol::RequestFacts Protocol::facts_of(const HttpRequest* request) {
  RequestFacts facts;
  const std::string_view method = request->get_method();
  facts.is_head = method == "HEAD";
  facts.is_connect = method == "CONNECT";
  facts.is_http10 = std::string_view(request->get_http_version()) == "HTTP/1.0";
  facts.keep_alive = request->is_keep_alive();
  return facts;
}

void Protocol::prepare_request(HttpRequest* request, const WFServerParams& params) {
  request->set_limits(&params.http_limits);
}

bool Protocol::is_header_complete(const HttpRequest* request) {
  return request->is_header_complete();
}

std::string Protocol::refusal(const HttpRequest* request, bool timed_out) {
  const int refused = request->refusal_status();
  const int status = timed_out ? HttpStatusRequestTimeout
                     : refused ? refused
                               : HttpStatusBadRequest;
  return last_answer(status);
}

std::string Protocol::unavailable() {
  return last_answer(HttpStatusServiceUnavailable);
}

namespace {

void complete_head(HttpResponse* response) {
  if (!response->get_http_version()) need(response->set_http_version("HTTP/1.1"));
  if (!response->get_status_code())
    need(protocol::HttpUtil::set_response_status(response, HttpStatusOK));
  if (response->content()->fields.find("Date") == protocol::HttpFields::kNotFound)
    need(response->add_header_pair("Date", date_now()));
}

}  // namespace

bool Protocol::prepare_reply(const RequestFacts& request, HttpResponse* response, bool may_keep) {
  complete_head(response);
  prepare_body(request, response);
  // What stands behind CONNECT may be meant for the tunnel. It is not read as a request, whatever
  // is replied (RFC 9931, 8).
  const bool keep =
      may_keep && request.keep_alive && response->is_keep_alive() && !request.is_connect;
  if (!response->has_connection_header()) {
    // Sent only if it is not what the version of the request implies (RFC 9112, 9.3).
    if (!keep)
      need(response->add_header_pair("Connection", "close"));
    else if (request.is_http10)
      need(response->add_header_pair("Connection", "keep-alive"));
  } else if (!keep) {
    need(response->set_header_pair("Connection", "close"));
  }
  return keep;
}

bool Protocol::can_stream(const HttpResponse* response) {
  return has_sendable_head(response);
}

workflow::ServerExchange::StreamForm Protocol::prepare_stream(const RequestFacts& request,
                                                              HttpResponse* response, bool may_keep,
                                                              bool of_events) {
  complete_head(response);
  if (of_events) {
    need(response->set_header_pair("Content-Type", "text/event-stream"));
    if (response->content()->fields.find("Cache-Control") == protocol::HttpFields::kNotFound)
      need(response->add_header_pair("Cache-Control", "no-cache"));
  }
  workflow::ServerExchange::StreamForm form = {};
  const bool bodiless = has_no_body(request, response->get_status_code());
  form.discards = bodiless || request.is_head;
  form.chunked = !bodiless && !request.is_http10;
  form.keep_alive = may_keep && request.keep_alive && response->is_keep_alive() &&
                    (form.discards || form.chunked) && !request.is_http10 && !request.is_connect;
  response->get_output_body_merged(form.first);
  response->clear_output_body();
  erase_header(response, "Content-Length");
  erase_header(response, "Transfer-Encoding");
  if (form.chunked) need(response->add_header_pair("Transfer-Encoding", "chunked"));
  if (!form.keep_alive) need(response->set_header_pair("Connection", "close"));
  return form;
}

#include "protocol/HttpHeadScanner.h"

#include <cstring>

#include "protocol/HttpGrammar.h"

namespace protocol {

namespace {

// Whether the line, which ends with its first LF, ends with CRLF and holds no other CR.
bool is_clean_line(std::string_view line) {
  return line.size() >= 2 && line.find('\r') == line.size() - 2;
}

}  // namespace

HttpHeadScanner::Result HttpHeadScanner::scan(const char* bytes, size_t size, bool is_request,
                                              const HttpLimits& limits) {
  while (!complete_) {
    const void* found =
        size > scanned_ ? std::memchr(bytes + scanned_, '\n', size - scanned_) : nullptr;
    if (found == nullptr) {
      scanned_ = size;
      std::string_view rest(bytes + line_start_, size - line_start_);
      refusal_ = check_incomplete_line(rest, limits);
      started_ = started_ || (!rest.empty() && rest[0] != '\r');
      return refusal_ == 0 ? Result::kMore : Result::kRefused;
    }
    size_t line_end = static_cast<size_t>(static_cast<const char*>(found) - bytes) + 1;
    std::string_view line(bytes + line_start_, line_end - line_start_);
    refusal_ = check_complete_line(line, is_request, limits);
    if (refusal_ != 0) return Result::kRefused;
    line_start_ = scanned_ = line_end;
    if (fields_start_ == 0) start_ = line_end;
  }
  return Result::kComplete;
}

void HttpHeadScanner::drop_front() {
  line_start_ -= start_;
  scanned_ -= start_;
  if (fields_start_ != 0) fields_start_ -= start_;
  start_ = 0;
}

int HttpHeadScanner::check_complete_line(std::string_view line, bool is_request,
                                         const HttpLimits& limits) {
  if (fields_start_ != 0) return check_field_line(line, limits);
  if (line == "\r\n") return is_request && ++empty_lines_ <= limits.leading_empty_lines ? 0 : 400;
  started_ = true;
  int refusal = check_start_line(line, is_request, limits);
  if (refusal == 0) fields_start_ = line_start_ + line.size();
  return refusal;
}

int HttpHeadScanner::check_incomplete_line(std::string_view line, const HttpLimits& limits) const {
  if (line.empty()) return 0;
  if (fields_start_ == 0) {
    // Binary noise, such as a TLS hello, often has no line end to wait for.
    if (line[0] != '\r' && !is_token_char(line[0])) return 400;
    if (line[0] == '\r' && line.size() > 1) return 400;
    return line.size() >= limits.request_line_bytes ? 414 : 0;
  }
  bool too_large = line.size() >= limits.field_line_bytes ||
                   line_start_ + line.size() - fields_start_ >= limits.header_bytes;
  return too_large ? 431 : 0;
}

int HttpHeadScanner::check_start_line(std::string_view line, bool is_request,
                                      const HttpLimits& limits) {
  if (!is_token_char(line[0])) return 400;
  if (line.size() > limits.request_line_bytes) return 414;
  if (!is_clean_line(line)) return 400;
  line.remove_suffix(2);
  return is_request ? parse_request_line(line) : parse_status_line(line);
}

int HttpHeadScanner::check_field_line(std::string_view line, const HttpLimits& limits) {
  if (line.size() > limits.field_line_bytes ||
      line_start_ + line.size() - fields_start_ > limits.header_bytes) {
    return 431;
  }
  if (line == "\r\n") {
    complete_ = true;
    return 0;
  }
  if (++field_count_ > limits.header_fields) return 431;
  // A line that begins with white space would fold into the one before; one that begins with the
  // colon has no name.
  return is_token_char(line[0]) && is_clean_line(line) ? 0 : 400;
}

// method SP request-target SP HTTP-version, each separated by exactly one space.
int HttpHeadScanner::parse_request_line(std::string_view line) {
  size_t first = line.find(' ');
  size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return 400;
  std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  std::string_view version = line.substr(last + 1);
  if (!is_token(method) || !is_acceptable_target(method, target)) return 400;
  if (!is_http_version(version)) return 400;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 505;
  parts_[0] = {0, static_cast<uint32_t>(first)};
  parts_[1] = {static_cast<uint32_t>(first + 1), static_cast<uint32_t>(target.size())};
  parts_[2] = {static_cast<uint32_t>(last + 1), static_cast<uint32_t>(version.size())};
  return 0;
}

// HTTP-version SP status-code SP [reason]; the second space is often left out with the reason.
int HttpHeadScanner::parse_status_line(std::string_view line) {
  constexpr size_t kVersion = 8;
  constexpr size_t kReason = kVersion + 5;
  std::string_view version = line.substr(0, kVersion);
  if (!is_http_version(version) || line.size() < kReason - 1 || line[kVersion] != ' ') return 400;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 505;
  if (!is_status_code(line.substr(kVersion + 1, 3))) return 400;
  if (line.size() >= kReason && line[kReason - 1] != ' ') return 400;
  size_t reason = line.size() < kReason ? line.size() : kReason;
  if (!is_printable_line(line.substr(reason))) return 400;
  parts_[0] = {0, kVersion};
  parts_[1] = {kVersion + 1, 3};
  parts_[2] = {static_cast<uint32_t>(reason), static_cast<uint32_t>(line.size() - reason)};
  return 0;
}

}  // namespace protocol

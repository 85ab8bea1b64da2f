#include "server/RequestReader.h"

#include <algorithm>

#include "workflow/WFServer.h"

namespace workflow {

void RequestReader::begin(ServerExchange* exchange, protocol::MessageChannel* channel,
                          const WFServerParams& params, int64_t header_began_ns, int64_t now_ns) {
  exchange_ = exchange;
  began_ns_ = now_ns;
  header_began_ns_ = header_began_ns;
  header_done_ns_ = kNever;
  received_ = 0;
  exchange->prepare_request(params);
  exchange->request()->set_channel(channel);
}

RequestReader::Result RequestReader::append(const char* data, size_t size) {
  received_ += size;
  size_t taken = size;
  const int result = exchange_->request()->append(data, &taken);
  if (result <= 0) return result < 0 ? Result::kBad : Result::kPart;
  rest_.assign(data + taken, size - taken);
  exchange_->request()->set_channel(nullptr);
  return Result::kWhole;
}

int64_t RequestReader::deadline_ns(const WFServerParams& params, int64_t now_ns) {
  const int64_t whole_ns = saturating_add(began_ns_, timeout_ns(params.receive_timeout));
  if (!exchange_->is_header_complete()) {
    return std::min(whole_ns, saturating_add(header_began_ns_, timeout_ns(params.header_timeout)));
  }
  if (header_done_ns_ == kNever) {
    header_done_ns_ = now_ns;
  }
  int64_t body_ns = kNever;
  if (params.body_timeout >= 0) {
    const size_t rate = params.body_bytes_per_second;
    const size_t seconds = rate > 0 ? received_ / rate : 0;
    const int64_t allowed_ns = saturating_add(timeout_ns(params.body_timeout),
                                              duration_ns(static_cast<int64_t>(seconds), 0));
    body_ns = saturating_add(header_done_ns_, allowed_ns);
  }
  const int64_t progress_ns = saturating_add(now_ns, timeout_ns(params.peer_response_timeout));
  return std::min({whole_ns, progress_ns, body_ns});
}

std::string RequestReader::refuse(bool timed_out) {
  std::string answer = exchange_->refusal(timed_out);
  abandon();
  rest_.clear();
  return answer;
}

void RequestReader::abandon() {
  if (exchange_) {
    take()->abandon();
  }
}

}  // namespace workflow

// Shows: a server that lets each client make so many requests per second, and answers the rest with
// 429 and when to come again. One periodic timer serves all clients.
//
// Try:   tutorial-19-rate_limiter [port]   default 8080; Enter stops it
//        for i in 1 2 3 4 5; do curl -i -H 'X-Api-Key: alice' http://127.0.0.1:8080/; done
#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTimer.h"

using std::chrono::seconds;

namespace {

// A bucket of tokens for each client: a request takes one, and each second brings one back.
class RateLimiter {
 public:
  explicit RateLimiter(uint64_t tokens) : tokens_(tokens) {
    WFTimerPeriod period;
    period.every = seconds(1);
    WFTimerTask* timer = WFTimer::create_periodic(
        period, {}, [this](const WFTimerTick& tick) { refill(1 + tick.missed); }, nullptr);
    timer_ = WFTimer::handle_of(timer);
    timer->start();
  }
  // No tick uses this any more when it has returned.
  ~RateLimiter() { timer_.cancel_and_wait(); }

  // False if the client has no token left.
  bool take(const std::string& client) {
    std::lock_guard<std::mutex> lock(mutex_);
    uint64_t& taken = taken_[client];
    if (taken == tokens_) {
      return false;
    }
    taken++;
    return true;
  }

  // When everybody gets the next token.
  seconds next_token() const {
    // While it ticks it does not wait for anything.
    const auto remaining = timer_.remaining().value_or(std::chrono::nanoseconds(0));
    return std::chrono::ceil<seconds>(remaining);
  }

 private:
  // Ticks that came too late for their time are left out and counted: nobody loses a token by that.
  void refill(uint64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto each = taken_.begin(); each != taken_.end();) {
      if (each->second <= count) {
        each = taken_.erase(each);
      } else {
        each->second -= count;
        ++each;
      }
    }
  }

  const uint64_t tokens_;
  WFTimerHandle timer_;
  std::mutex mutex_;
  // Only of clients whose bucket is not full: who has gone is forgotten.
  std::unordered_map<std::string, uint64_t> taken_;
};

void process(WFHttpTask* task, RateLimiter& limiter) {
  // The key names the client. A real server would have checked it by now.
  std::string key;
  protocol::HttpHeaderCursor(task->get_req()).find("X-Api-Key", key);
  protocol::HttpResponse* response = task->get_resp();
  if (limiter.take(key)) {
    response->append_output_body("at your service\n");
    return;
  }
  protocol::HttpUtil::set_response_status(response, HttpStatusTooManyRequests);
  response->add_header_pair("Retry-After", std::to_string(limiter.next_token().count()));
}

}  // namespace

int main(int argc, char* argv[]) {
  RateLimiter limiter(3);
  WFHttpServer server([&](WFHttpTask* task) { process(task, limiter); });
  const int port = argc > 1 ? std::atoi(argv[1]) : 8080;
  if (server.start("127.0.0.1", static_cast<unsigned short>(port)) != 0) {
    std::perror("cannot start the server");
    return 1;
  }
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  std::printf("listening on http://127.0.0.1:%d, Enter stops\n", ntohs(address.sin_port));
  std::fflush(stdout);
  std::getchar();
  server.stop();
}

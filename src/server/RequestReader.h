#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "util/Time.h"
#include "workflow/WFServerTask.h"

namespace workflow {

// Makes requests of the bytes that come on one connection, one request at a time, and says when the
// rest of a request must have come. It knows neither socket, lock nor clock: bytes and times are
// passed in.
//
// Owned by a ServerConnection, which says which thread may use it.
//
// Invariants:
// 1. exchange_ is set from the first byte of a request until the request is taken or given up.
//    Meanwhile the reader owns it.
// 2. rest_ has come after a whole request, and belongs to the next one.
class RequestReader {
 public:
  enum class Result { kPart, kWhole, kBad };

  // Begins to receive into `exchange`. If this throws, the reader owns the exchange. The time limit
  // of the header begins at `header_began_ns`. Interim answers are written to `channel`.
  void begin(ServerExchange* exchange, protocol::MessageChannel* channel,
             const WFServerParams& params, int64_t header_began_ns, int64_t now_ns);
  // The request that is being received, or null.
  ServerExchange* exchange() const { return exchange_; }

  Result append(const char* data, size_t size);
  // After kPart: when the rest must have come, if nothing more comes until then.
  int64_t deadline_ns(const WFServerParams& params, int64_t now_ns);
  // After kWhole: gives the request to the caller.
  ServerExchange* take() { return std::exchange(exchange_, nullptr); }

  bool has_rest() const { return !rest_.empty(); }
  std::string take_rest() { return std::exchange(rest_, {}); }

  // Gives up a request that cannot be served. Returns what to answer, if anything.
  std::string refuse(bool timed_out);
  // Gives up the request, if there is one.
  void abandon();

 private:
  ServerExchange* exchange_ = nullptr;
  std::string rest_;
  int64_t began_ns_ = 0;
  int64_t header_began_ns_ = 0;
  int64_t header_done_ns_ = kNever;  // kNever: the header is not complete
  size_t received_ = 0;              // bytes of the request so far
};

}  // namespace workflow

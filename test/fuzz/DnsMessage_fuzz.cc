#include <netdb.h>

#include <cstdint>

#include "Fuzzing.h"
#include "kernel/DnsMessage.h"

// The bytes are what a name server has sent.

using fuzzing::require;
using workflow::DnsAnswer;
using workflow::DnsMessage;

namespace {

void check_read(const DnsMessage& message, const char* name, int family) {
  const DnsAnswer answer = message.read(name, family);
  require((answer.error == 0) == !answer.addresses.empty());
  require(answer.error == 0 || answer.error == EAI_NONAME || answer.error == EAI_NODATA ||
          answer.error == EAI_AGAIN || answer.error == EAI_FAIL);
  require(answer.addresses.size() <= DnsMessage::kMaxAddresses && answer.ttl_ns >= 0);
  require(message.code() != 0 || (answer.error != EAI_NONAME && answer.error != EAI_AGAIN));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < DnsMessage::kHeaderSize) return 0;
  const DnsMessage message(data, size);
  const int family = message.family();
  require(family == AF_UNSPEC || family == AF_INET || family == AF_INET6);
  for (const char* name : {"www.example.com", "a.example.com", "b.c"}) {
    check_read(message, name, AF_INET);
    check_read(message, name, AF_INET6);
  }
  return 0;
}

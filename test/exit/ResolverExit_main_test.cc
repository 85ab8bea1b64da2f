#include <gtest/gtest.h>
#include <netdb.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernel/Resolver.h"
#include "support/ChildProcess.h"
#include "support/FakeDnsServer.h"

// Look-ups that nobody has answered when the process ends.

using test_support::DnsReply;
using test_support::FakeDnsServer;
using workflow::HostAddresses;
using workflow::Resolver;
using workflow::ResolveRequest;
using workflow::Runtime;

namespace {

class SpeakingRequest final : public ResolveRequest {
 public:
  void resolved(int error, HostAddresses) override {
    std::printf("told %s\n", error == EAI_CANCELED ? "of the end" : "something else");
    delete this;
  }
};

int ask_and_leave(const std::string& server) {
  Resolver::configure(
      {.files = {.hosts_path = "", .resolv_conf_path = "", .servers = {server}}, .max_asking = 2});
  auto& resolver = Runtime::current().part<Resolver>();
  for (const char* host : {"a.test", "b.test", "b.test", "c.test", "d.test"}) {
    resolver.resolve(host, AF_UNSPEC, new SpeakingRequest);
  }
  return 0;
}

}  // namespace

TEST(ResolverExit, EachRequestIsToldOfTheEnd) {
  FakeDnsServer server;
  server.set_others({.how = DnsReply::How::kDrop});
  const test_support::ChildResult result = test_support::run_self(
      {"RESOLVER_EXIT_SERVER=" + server.address()}, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0);
  std::string expected;
  for (int i = 0; i < 5; i++) {
    expected += "told of the end\n";
  }
  EXPECT_EQ(result.output, expected);
}

int main(int argc, char** argv) {
  if (const char* server = std::getenv("RESOLVER_EXIT_SERVER")) {
    return ask_and_leave(server);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

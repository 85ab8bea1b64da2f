#include <gtest/gtest.h>
#include <netdb.h>

#include <string>

#include "kernel/Resolver.h"
#include "support/ExitKit.h"
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
    exit_kit::say(error == EAI_CANCELED ? "told of the end" : "told something else");
    delete this;
  }
};

void ask_and_leave() {
  Resolver::configure({.files = {.hosts_path = "",
                                 .resolv_conf_path = "",
                                 .servers = {exit_kit::variable("RESOLVER_EXIT_SERVER")}},
                       .max_asking = 2});
  auto& resolver = Runtime::current().part<Resolver>();
  for (const char* host : {"a.test", "b.test", "b.test", "c.test", "d.test"}) {
    resolver.resolve(host, AF_UNSPEC, new SpeakingRequest);
  }
}

constexpr exit_kit::Scenario kScenarios[] = {{"asking", ask_and_leave}};

}  // namespace

TEST(ResolverExit, EachRequestIsToldOfTheEnd) {
  FakeDnsServer server;
  server.set_others({.how = DnsReply::How::kDrop});
  std::string expected;
  for (int i = 0; i < 5; i++) {
    expected += "told of the end\n";
  }
  EXPECT_EQ(exit_kit::play("asking", {"RESOLVER_EXIT_SERVER=" + server.address()}), expected);
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

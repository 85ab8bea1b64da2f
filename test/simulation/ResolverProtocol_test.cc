// Requests for addresses, their cancelling and the stop, under every interleaving that many seeds
// find. There are no sockets in a simulation, so what neither the hosts file nor localhost answers
// fails when it asks.

#include <gtest/gtest.h>
#include <netdb.h>

#include <deque>
#include <string>

#include "kernel/Resolver.h"
#include "support/Seeds.h"
#include "workflow/WFSimulation.h"

using workflow::HostAddresses;
using workflow::Resolver;
using workflow::ResolveRequest;
using workflow::Runtime;

namespace {

constexpr uint64_t kResolverSeeds = 1200;

class Request final : public ResolveRequest {
 public:
  void ask(const std::string& host) {
    host_ = host;
    Runtime::current().part<Resolver>().resolve(host, AF_INET, this);
  }
  void cancel() { cancelled_ += Runtime::current().part<Resolver>().cancel(this) ? 1 : 0; }
  void resolved(int error, HostAddresses) override {
    told_++;
    error_ = error;
  }

  void expect_one_end(bool stopped) const {
    EXPECT_EQ(told_ + cancelled_, 1) << host_;
    if (told_ == 1 && !(stopped && error_ == EAI_CANCELED)) {
      EXPECT_EQ(error_, host_ == "localhost" ? 0 : EAI_SYSTEM) << host_;
    }
  }

 private:
  std::string host_;
  int told_ = 0;
  int cancelled_ = 0;
  int error_ = 0;
};

void configure() {
  Resolver::configure({.files = {.hosts_path = "", .resolv_conf_path = ""}, .max_asking = 1});
}

}  // namespace

TEST(ResolverProtocol, EachRequestEndsOnce) {
  configure();
  for_each_seed(kResolverSeeds, [](uint64_t seed) {
    const bool stopped = seed % 2 == 0;
    std::deque<Request> requests(12);
    WFSimulation simulation(seed);
    for (size_t thread = 0; thread < 3; thread++) {
      simulation.spawn([&requests, thread] {
        for (size_t i = 0; i < 4; i++) {
          static const char* const kHosts[] = {"localhost", "one.test", "one.test", "two.test"};
          requests[thread * 4 + i].ask(kHosts[(thread + i) % 4]);
        }
      });
    }
    if (stopped) {
      simulation.spawn([] { Runtime::current().part<Resolver>().forget("localhost", AF_INET); });
    } else {
      const WFSimulationResult result = simulation.run();
      ASSERT_TRUE(result.ok()) << result.description;
    }
    const WFSimulationResult end = simulation.stop();
    ASSERT_TRUE(end.ok()) << end.description;
    for (const Request& request : requests) {
      request.expect_one_end(stopped);
    }
  });
}

TEST(ResolverProtocol, CancelMeetsTheAnswer) {
  configure();
  for_each_seed(kResolverSeeds, [](uint64_t seed) {
    std::deque<Request> requests(4);
    WFSimulation simulation(seed);
    for (Request& request : requests) {
      simulation.spawn([&request, seed] {
        request.ask(seed % 3 == 0 ? "localhost" : "one.test");
        request.cancel();
      });
    }
    const WFSimulationResult end = seed % 2 == 0 ? simulation.stop() : simulation.run();
    ASSERT_TRUE(end.ok()) << end.description;
    for (const Request& request : requests) {
      request.expect_one_end(seed % 2 == 0);
    }
  });
}

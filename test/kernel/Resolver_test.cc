#include "kernel/Resolver.h"

#include <algorithm>
#include <set>

#include "kernel/ResolverKit.h"

using namespace test_support;
using workflow::HostAddresses;
using workflow::kNsPerSec;
using workflow::Resolver;
using workflow::ResolveRequest;

namespace {

using How = DnsReply::How;

}  // namespace

TEST_F(ResolverTest, AsksTheServerForAName) {
  server_.set("www.test", {.v4 = {"192.0.2.1", "192.0.2.2"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1", "192.0.2.2"}}));
  EXPECT_EQ(server_.asked("www.test"), 1U);
  EXPECT_EQ(server_.asked("www.test", 28), 0U);
}

TEST_F(ResolverTest, PortsAreZero) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  Asker asker;
  resolver().resolve("www.test", AF_INET, &asker);
  ASSERT_TRUE(asker.wait());
  ASSERT_EQ(asker.error(), 0);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(asker.addresses()->at(0).address).sin_port, 0);
}

TEST_F(ResolverTest, AsksForTheFamilyThatIsWanted) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}});
  EXPECT_EQ(look_up("www.test", AF_INET6), (Found{0, {"2001:db8::1"}}));
  EXPECT_EQ(server_.asked("www.test", 1), 0U);
  EXPECT_EQ(look_up("www.test", AF_INET), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverTest, BothFamiliesStandTogether) {
  server_.set("www.test", {.v4 = {"192.0.2.1", "192.0.2.2"}, .v6 = {"2001:db8::1"}});
  Found found = look_up("www.test", AF_UNSPEC);
  EXPECT_EQ(found.error, 0);
  ASSERT_EQ(found.addresses.size(), 3U);
  EXPECT_TRUE(found.addresses[1] != "2001:db8::1") << found;
  std::sort(found.addresses.begin(), found.addresses.end());
  EXPECT_EQ(found.addresses, (std::vector<std::string>{"192.0.2.1", "192.0.2.2", "2001:db8::1"}));
}

TEST_F(ResolverTest, OneFamilyIsEnoughForBoth) {
  server_.set("v4.test", {.v4 = {"192.0.2.1"}});
  server_.set("v6.test", {.v6 = {"2001:db8::1"}});
  EXPECT_EQ(look_up("v4.test", AF_UNSPEC), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(look_up("v6.test", AF_UNSPEC), (Found{0, {"2001:db8::1"}}));
}

TEST_F(ResolverTest, NumericHostsAreNotLookedUp) {
  for (const char* host : {"192.0.2.7", "2001:db8::7", "fe80::1%1", "::ffff:192.0.2.7"}) {
    Asker asker;
    resolver().resolve(host, AF_UNSPEC, &asker);
    EXPECT_EQ(asker.times_told(), 1U) << host;
    EXPECT_EQ(asker.error(), 0) << host;
    ASSERT_EQ(asker.addresses()->size(), 1U) << host;
  }
  Asker scoped;
  resolver().resolve("fe80::1%1", AF_INET6, &scoped);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in6&>(scoped.addresses()->at(0).address).sin6_scope_id,
            1U);
  EXPECT_EQ(server_.asked_in_all(), 0U);
}

TEST_F(ResolverTest, ANumericHostOfAnotherFamilyIsAnError) {
  EXPECT_EQ(look_up("192.0.2.7", AF_INET6).error, EAI_ADDRFAMILY);
  EXPECT_EQ(look_up("::1", AF_INET).error, EAI_ADDRFAMILY);
  EXPECT_EQ(look_up("www.test", AF_UNIX).error, EAI_FAMILY);
}

TEST_F(ResolverTest, WhatCannotBeANameIsRefusedAtOnce) {
  const std::string label(63, 'a');
  const std::string too_long = label + "." + label + "." + label + "." + label;
  const std::string hosts[] = {"",
                               ".",
                               "a..b",
                               ".a",
                               "a b",
                               "a\tb",
                               "a/b",
                               "a@b",
                               "a:1",
                               "[::1]",
                               "1.2.3",
                               "127.1",
                               "256.1.1.1",
                               "0x7f.0x1",
                               "1.2.3.4.",
                               "fe80::1%no-such-if",
                               "b\xc3\xbc.test",
                               too_long,
                               label + "a.test",
                               std::string("a\0b", 3)};
  for (const std::string& host : hosts) {
    Asker asker;
    resolver().resolve(host, AF_UNSPEC, &asker);
    EXPECT_EQ(asker.times_told(), 1U) << host;
    EXPECT_EQ(asker.error(), EAI_NONAME) << host;
  }
  EXPECT_EQ(server_.asked_in_all(), 0U);
}

TEST_F(ResolverTest, TheLongestNameIsAskedFor) {
  const std::string label(63, 'a');
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'b');
  ASSERT_EQ(longest.size(), 253U);
  server_.set(longest, {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up(longest), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverTest, CaseOfLettersDoesNotMatter) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("WWW.Test").error, 0);
  EXPECT_EQ(look_up("www.tEST"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test"), 1U);
}

TEST_F(ResolverTest, LocalhostIsLoopbackWithoutAServer) {
  EXPECT_EQ(look_up("localhost", AF_INET), (Found{0, {"127.0.0.1"}}));
  EXPECT_EQ(look_up("Localhost.", AF_INET6), (Found{0, {"::1"}}));
  EXPECT_EQ(look_up("any.localhost", AF_INET), (Found{0, {"127.0.0.1"}}));
  EXPECT_EQ(look_up("localhost", AF_UNSPEC).addresses.size(), 2U);
  EXPECT_EQ(server_.asked_in_all(), 0U);
}

TEST_F(ResolverTest, AnswersAreBelievedAsLongAsTheySay) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 60});
  EXPECT_EQ(look_up("www.test").error, 0);
  server_.set("www.test", {.v4 = {"192.0.2.2"}, .ttl_s = 60});
  pass(60 * kNsPerSec - 1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test"), 1U);
  pass(1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.2"}}));
  EXPECT_EQ(server_.asked("www.test"), 2U);
}

TEST_F(ResolverTest, TheTimeOfAnAliasCountsToo) {
  server_.set("www.test",
              {.v4 = {"192.0.2.1"}, .ttl_s = 60, .alias = "other.test", .alias_ttl_s = 10});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  pass_seconds(10);
  EXPECT_EQ(look_up("www.test").error, 0);
  EXPECT_EQ(server_.asked("www.test"), 2U);
}

TEST_F(ResolverTest, NoAnswerIsBelievedForLongerThanTheLimit) {
  options_.cache.ttl_max_ns = 100 * kNsPerSec;
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 1'000'000});
  EXPECT_EQ(look_up("www.test").error, 0);
  pass_seconds(99);
  EXPECT_EQ(look_up("www.test").error, 0);
  EXPECT_EQ(server_.asked("www.test"), 1U);
  pass_seconds(1);
  EXPECT_EQ(look_up("www.test").error, 0);
  EXPECT_EQ(server_.asked("www.test"), 2U);
}

TEST_F(ResolverTest, AnswersThatMayNotBeKeptAreAskedForEachTime) {
  server_.set("zero.test", {.v4 = {"192.0.2.1"}, .ttl_s = 0});
  server_.set("negative.test", {.v4 = {"192.0.2.1"}, .ttl_s = 0x80000000});
  for (size_t i = 1; i <= 2; i++) {
    EXPECT_EQ(look_up("zero.test").error, 0);
    EXPECT_EQ(look_up("negative.test").error, 0);
    EXPECT_EQ(server_.asked("zero.test"), i);
    EXPECT_EQ(server_.asked("negative.test"), i);
  }
}

TEST_F(ResolverTest, WhatDoesNotExistIsRememberedForFiveSeconds) {
  EXPECT_EQ(look_up("none.test"), Found{EAI_NONAME});
  server_.set("none.test", {.v4 = {"192.0.2.1"}});
  pass(5 * kNsPerSec - 1);
  EXPECT_EQ(look_up("none.test"), Found{EAI_NONAME});
  pass(1);
  EXPECT_EQ(look_up("none.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("none.test"), 2U);
}

TEST_F(ResolverTest, ANameWithoutSuchAnAddressIsNoData) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test", AF_INET6), Found{EAI_NODATA});
  EXPECT_EQ(look_up("www.test", AF_INET6), Found{EAI_NODATA});
  EXPECT_EQ(server_.asked("www.test"), 1U);
  server_.set("empty.test", {});
  EXPECT_EQ(look_up("empty.test", AF_UNSPEC), Found{EAI_NODATA});
}

TEST_F(ResolverTest, AnAnswerOfManyAddressesIsCutToABound) {
  DnsReply reply{.only_tcp = true};
  for (int i = 0; i < 1000; i++) {
    reply.v4.push_back("10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256));
  }
  server_.set("many.test", reply);
  EXPECT_EQ(look_up("many.test").addresses.size(), workflow::DnsMessage::kMaxAddresses);
}

TEST_F(ResolverTest, ForgettingAsksAgainOnceTheAnswerIsOldEnough) {
  options_.cache.ttl_min_ns = 10 * kNsPerSec;
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test").error, 0);
  pass_seconds(4);
  resolver().forget("WWW.test", AF_INET);
  EXPECT_EQ(look_up("www.test").error, 0);
  EXPECT_EQ(server_.asked("www.test"), 1U);
  pass_seconds(6);
  EXPECT_EQ(look_up("www.test").error, 0);
  EXPECT_EQ(server_.asked("www.test"), 2U);
  pass_seconds(20);
  resolver().forget("www.test", AF_INET);
  EXPECT_EQ(look_up("www.test").error, 0);
  EXPECT_EQ(server_.asked("www.test"), 3U);
}

TEST_F(ResolverTest, WhoWantTheSameShareOneQuestion) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  server_.hold();
  std::vector<Asker> askers(100);
  for (Asker& asker : askers) {
    resolver().resolve("www.test", AF_INET, &asker);
  }
  ASSERT_TRUE(server_.wait_for_questions("www.test", 1));
  EXPECT_EQ(askers[0].times_told(), 0U);
  server_.release();
  for (Asker& asker : askers) {
    ASSERT_TRUE(asker.wait());
    EXPECT_EQ(asker.error(), 0);
    EXPECT_EQ(asker.addresses(), askers[0].addresses());
  }
  EXPECT_EQ(server_.asked("www.test"), 1U);
}

TEST_F(ResolverTest, CancelledRequestsAreNotTold) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  server_.hold();
  std::vector<Asker> askers(3);
  for (Asker& asker : askers) {
    resolver().resolve("www.test", AF_INET, &asker);
  }
  EXPECT_TRUE(resolver().cancel(&askers[1]));
  EXPECT_FALSE(resolver().cancel(&askers[1]));
  server_.release();
  ASSERT_TRUE(askers[0].wait());
  ASSERT_TRUE(askers[2].wait());
  EXPECT_FALSE(resolver().cancel(&askers[2]));
  EXPECT_EQ(askers[1].times_told(), 0U);
}

TEST_F(ResolverTest, ACancelledRequestMayAskAgain) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  server_.hold();
  Asker asker;
  for (int i = 0; i < 3; i++) {
    resolver().resolve("www.test", AF_INET, &asker);
    EXPECT_TRUE(resolver().cancel(&asker));
  }
  resolver().resolve("www.test", AF_INET, &asker);
  server_.release();
  ASSERT_TRUE(asker.wait());
  EXPECT_EQ(asker.times_told(), 1U);
}

TEST_F(ResolverTest, OnlySoManyAskAtATimeAndTheOthersWait) {
  options_.max_asking = 2;
  server_.set_others({.v4 = {"192.0.2.1"}});
  server_.hold();
  std::vector<Asker> askers(6);
  for (size_t i = 0; i < askers.size(); i++) {
    resolver().resolve("n" + std::to_string(i) + ".test", AF_INET, &askers[i]);
  }
  ASSERT_TRUE(server_.wait_for_questions("n0.test", 1));
  ASSERT_TRUE(server_.wait_for_questions("n1.test", 1));
  pass(0);
  EXPECT_EQ(server_.asked_in_all(), 2U);
  // Nobody waits for it when its turn comes.
  EXPECT_TRUE(resolver().cancel(&askers[3]));
  server_.release();
  for (size_t i = 0; i < askers.size(); i++) {
    if (i != 3) {
      ASSERT_TRUE(askers[i].wait()) << i;
      EXPECT_EQ(askers[i].error(), 0) << i;
    }
  }
  EXPECT_EQ(server_.asked("n3.test"), 0U);
}

// While none of them is answered: whoever wants to forge the answers has to guess each port.
TEST_F(ResolverTest, EachLookUpHasAPortOfItsOwn) {
  server_.set_others({.v4 = {"192.0.2.1"}});
  server_.hold();
  std::vector<Asker> askers(20);
  for (size_t i = 0; i < askers.size(); i++) {
    resolver().resolve("n" + std::to_string(i) + ".test", AF_INET, &askers[i]);
  }
  for (size_t i = 0; i < askers.size(); i++) {
    EXPECT_TRUE(server_.wait_for_questions("n" + std::to_string(i) + ".test", 1));
  }
  server_.release();
  for (const Asker& asker : askers) {
    ASSERT_TRUE(asker.wait());
    EXPECT_EQ(asker.error(), 0);
  }
  const std::vector<uint16_t> ports = server_.ports();
  EXPECT_EQ(std::set<uint16_t>(ports.begin(), ports.end()).size(), askers.size());
}

TEST_F(ResolverTest, ARequestMayAskAgainWhenItIsTold) {
  class Again final : public ResolveRequest {
   public:
    Again(Resolver& resolver, test_support::Tally& done) : resolver_(resolver), done_(done) {}
    void resolved(int error, HostAddresses) override {
      EXPECT_EQ(error, 0);
      if (++times_ == 1) {
        resolver_.resolve("second.test", AF_INET, this);
        return;
      }
      test_support::Tally& done = done_;
      delete this;
      done.add();
    }

   private:
    Resolver& resolver_;
    test_support::Tally& done_;
    int times_ = 0;
  };
  server_.set_others({.v4 = {"192.0.2.1"}});
  test_support::Tally done;
  resolver().resolve("first.test", AF_INET, new Again(resolver(), done));
  EXPECT_TRUE(done.wait_for(1));
}

#include <sys/socket.h>

#include "kernel/Resolver.h"
#include "kernel/ResolverKit.h"
#include "support/Eventually.h"

// A look-up of both families asks two questions, whose answers may disagree.

namespace {

using namespace test_support;
using How = DnsReply::How;

constexpr int kServFail = 2;
constexpr int kNxDomain = 3;
constexpr int kRefused = 5;

class ResolverFamiliesTest : public test_support::ResolverTest {
 protected:
  void set_both(const std::string& name, DnsReply v4, DnsReply v6) {
    server_.set(name, kDnsA, std::move(v4));
    server_.set(name, kDnsAaaa, std::move(v6));
  }
};

DnsReply code(int rcode) {
  return {.rcode = rcode};
}

DnsReply no_address() {
  return {};
}

const std::vector<std::string> kBoth = {"192.0.2.1", "2001:db8::1"};

std::vector<std::string> sorted(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

bool is_failure(int rcode) {
  return rcode != 0 && rcode != kNxDomain;
}

TEST_F(ResolverFamiliesTest, EveryFailureBesideAnEmptyAnswerIsAFailure) {
  for (int rcode = 0; rcode < 16; rcode++) {
    if (!is_failure(rcode)) continue;
    const std::string v4_fails = "a" + std::to_string(rcode) + ".test";
    const std::string v6_fails = "b" + std::to_string(rcode) + ".test";
    set_both(v4_fails, code(rcode), no_address());
    set_both(v6_fails, no_address(), code(rcode));
    EXPECT_EQ(look_up(v4_fails, AF_UNSPEC), Found{EAI_AGAIN}) << rcode;
    EXPECT_EQ(look_up(v6_fails, AF_UNSPEC), Found{EAI_AGAIN}) << rcode;
    // The failed question is asked again. The other has its answer.
    EXPECT_EQ(server_.asked(v4_fails, kDnsA), 2U) << rcode;
    EXPECT_EQ(server_.asked(v4_fails, kDnsAaaa), 1U) << rcode;
    EXPECT_EQ(server_.asked(v6_fails, kDnsA), 1U) << rcode;
    EXPECT_EQ(server_.asked(v6_fails, kDnsAaaa), 2U) << rcode;
  }
}

TEST_F(ResolverFamiliesTest, EveryFailureBesideANameThatDoesNotExistIsAFailure) {
  for (int rcode = 0; rcode < 16; rcode++) {
    if (!is_failure(rcode)) continue;
    const std::string name = "a" + std::to_string(rcode) + ".test";
    set_both(name, code(rcode), code(kNxDomain));
    EXPECT_EQ(look_up(name, AF_UNSPEC), Found{EAI_AGAIN}) << rcode;
  }
}

TEST_F(ResolverFamiliesTest, EveryResponseCodeHasItsError) {
  for (int rcode = 0; rcode < 16; rcode++) {
    const std::string name = "a" + std::to_string(rcode) + ".test";
    server_.set(name, code(rcode));
    const int error = rcode == 0 ? EAI_NODATA : rcode == kNxDomain ? EAI_NONAME : EAI_AGAIN;
    const size_t attempts = is_failure(rcode) ? 2 : 1;
    EXPECT_EQ(look_up(name, AF_UNSPEC), Found{error}) << rcode;
    EXPECT_EQ(server_.asked(name, kDnsA), attempts) << rcode;
    EXPECT_EQ(server_.asked(name, kDnsAaaa), attempts) << rcode;
    EXPECT_EQ(look_up(name, AF_INET), Found{error}) << rcode;
    EXPECT_EQ(look_up(name, AF_INET6), Found{error}) << rcode;
    EXPECT_EQ(server_.asked(name, kDnsA), 2 * attempts) << rcode;
    EXPECT_EQ(server_.asked(name, kDnsAaaa), 2 * attempts) << rcode;
  }
}

TEST_F(ResolverFamiliesTest, ACodeMeansTheSameByTcp) {
  for (int rcode = 0; rcode < 16; rcode++) {
    const std::string name = "a" + std::to_string(rcode) + ".test";
    set_both(name, {.rcode = rcode, .only_tcp = true}, no_address());
    const bool verdict = !is_failure(rcode);
    EXPECT_EQ(look_up(name, AF_UNSPEC), Found{verdict ? EAI_NODATA : EAI_AGAIN}) << rcode;
    set_both(name, {.v4 = {"192.0.2.1"}}, no_address());
    EXPECT_EQ(look_up(name, AF_UNSPEC).error, verdict ? EAI_NODATA : 0) << rcode;
  }
  EXPECT_GE(server_.asked_by_tcp(), 16U);
}

TEST_F(ResolverFamiliesTest, NoFailureIsRemembered) {
  for (int rcode = 0; rcode < 16; rcode++) {
    const std::string name = "a" + std::to_string(rcode) + ".test";
    set_both(name, code(rcode), no_address());
    EXPECT_NE(look_up(name, AF_UNSPEC).error, 0) << rcode;
    set_both(name, {.v4 = {"192.0.2.1"}}, no_address());
    const bool verdict = !is_failure(rcode);
    EXPECT_EQ(look_up(name, AF_UNSPEC).error, verdict ? EAI_NODATA : 0) << rcode;
  }
}

TEST_F(ResolverFamiliesTest, ABrokenAnswerBesideAnEmptyOneIsAFailure) {
  set_both("www.test", {.v4 = {"192.0.2.1"}, .how = How::kCutMessage}, no_address());
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), Found{EAI_FAIL});
  EXPECT_EQ(server_.asked("www.test", kDnsA), 2U);
  EXPECT_EQ(server_.asked("www.test", kDnsAaaa), 1U);
  set_both("www.test", {.v4 = {"192.0.2.1"}}, no_address());
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverFamiliesTest, SilenceBesideAnEmptyAnswerIsAFailure) {
  be_impatient();
  set_both("www.test", {.how = How::kDrop}, no_address());
  EXPECT_EQ(look_up_patiently("www.test", AF_UNSPEC), Found{EAI_AGAIN});
  EXPECT_TRUE(test_support::eventually([this] { return server_.asked("www.test", kDnsA) == 2; }));
}

TEST_F(ResolverFamiliesTest, TheNextServerIsAskedForTheFamilyThatFailed) {
  FakeDnsServer bad;
  bad.set("www.test", kDnsA, code(kServFail));
  bad.set("www.test", kDnsAaaa, no_address());
  options_.files.servers = {bad.address(), server_.address()};
  set_both("www.test", {.v4 = {"192.0.2.1"}}, no_address());
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test", kDnsA), 1U);
  EXPECT_EQ(server_.asked("www.test", kDnsAaaa), 0U);
}

TEST_F(ResolverFamiliesTest, TwoServersMayHaveOneFamilyEach) {
  FakeDnsServer other;
  other.set("www.test", kDnsA, code(kRefused));
  other.set("www.test", kDnsAaaa, {.v6 = {"2001:db8::1"}, .ttl_s = 100});
  options_.files.servers = {other.address(), server_.address()};
  set_both("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 200}, code(kServFail));
  EXPECT_EQ(sorted(look_up("www.test", AF_UNSPEC).addresses), kBoth);
  // Both families were answered, so the answer is believed as long as it says.
  pass_seconds(99);
  EXPECT_EQ(sorted(look_up("www.test", AF_UNSPEC).addresses), kBoth);
  EXPECT_EQ(other.asked_in_all(), 2U);
  pass_seconds(1);
  EXPECT_EQ(sorted(look_up("www.test", AF_UNSPEC).addresses), kBoth);
  EXPECT_EQ(other.asked_in_all(), 4U);
}

TEST_F(ResolverFamiliesTest, OldAddressesServeWhileOneFamilyFails) {
  set_both("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 60}, no_address());
  EXPECT_EQ(look_up("www.test", AF_UNSPEC).error, 0);
  pass_seconds(60);
  for (const int rcode : {kServFail, kRefused, 15}) {
    set_both("www.test", code(rcode), no_address());
    EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"192.0.2.1"}})) << rcode;
    pass_seconds(30);
  }
  EXPECT_EQ(server_.asked("www.test", kDnsA), 7U);
}

TEST_F(ResolverFamiliesTest, OldAddressesServeForTheFamilyThatFails) {
  set_both("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 60}, {.v6 = {"2001:db8::1"}, .ttl_s = 60});
  EXPECT_EQ(sorted(look_up("www.test", AF_UNSPEC).addresses), kBoth);
  pass_seconds(60);
  set_both("www.test", code(kServFail), {.v6 = {"2001:db8::2"}, .ttl_s = 3600});
  const std::vector<std::string> mixed = {"192.0.2.1", "2001:db8::2"};
  for (int i = 0; i < 3600 / 30; i++) {
    ASSERT_EQ(sorted(look_up("www.test", AF_UNSPEC).addresses), mixed) << i;
    pass_seconds(30);
  }
  // An hour past their time is the limit, however often they have served.
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"2001:db8::2"}}));
  set_both("www.test", {.v4 = {"192.0.2.3"}}, {.v6 = {"2001:db8::2"}});
  pass_seconds(30);
  EXPECT_EQ(sorted(look_up("www.test", AF_UNSPEC).addresses),
            (std::vector<std::string>{"192.0.2.3", "2001:db8::2"}));
}

TEST_F(ResolverFamiliesTest, OldAddressesEndWhenTheirFamilyIsEmpty) {
  set_both("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 60}, {.v6 = {"2001:db8::1"}, .ttl_s = 60});
  EXPECT_EQ(look_up("www.test", AF_UNSPEC).addresses.size(), 2U);
  pass_seconds(60);
  set_both("www.test", no_address(), {.v6 = {"2001:db8::1"}, .ttl_s = 60});
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"2001:db8::1"}}));
}

TEST_F(ResolverFamiliesTest, OneFamilyIsGivenWhenTheOtherFailsAndAskedForAgainSoon) {
  for (const int rcode : {1, kServFail, 4, kRefused, 15}) {
    const std::string name = "a" + std::to_string(rcode) + ".test";
    set_both(name, {.v4 = {"192.0.2.1"}, .ttl_s = 3600}, code(rcode));
    EXPECT_EQ(look_up(name, AF_UNSPEC), (Found{0, {"192.0.2.1"}})) << rcode;
    EXPECT_EQ(server_.asked(name, kDnsA), 1U) << rcode;
    EXPECT_EQ(server_.asked(name, kDnsAaaa), 2U) << rcode;
    set_both(name, {.v4 = {"192.0.2.1"}}, {.v6 = {"2001:db8::1"}});
    pass_seconds(29);
    EXPECT_EQ(look_up(name, AF_UNSPEC).addresses.size(), 1U) << rcode;
    pass_seconds(1);
    EXPECT_EQ(sorted(look_up(name, AF_UNSPEC).addresses), kBoth) << rcode;
  }
}

TEST_F(ResolverFamiliesTest, AnEmptyFamilyIsNoReasonToAskAgainSoon) {
  set_both("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 3600}, no_address());
  set_both("broken.test", {.v4 = {"192.0.2.1"}, .ttl_s = 3600}, code(kNxDomain));
  for (const char* name : {"www.test", "broken.test"}) {
    EXPECT_EQ(look_up(name, AF_UNSPEC), (Found{0, {"192.0.2.1"}})) << name;
  }
  pass_seconds(3599);
  for (const char* name : {"www.test", "broken.test"}) {
    EXPECT_EQ(look_up(name, AF_UNSPEC), (Found{0, {"192.0.2.1"}})) << name;
    EXPECT_EQ(server_.asked(name), 2U) << name;
  }
}

// RFC 4074, 4.2: there are servers that say so of names that only have IPv4 addresses.
TEST_F(ResolverFamiliesTest, ANameThatDoesNotExistForOneFamilyOnlyExists) {
  set_both("www.test", no_address(), code(kNxDomain));
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), Found{EAI_NODATA});
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), Found{EAI_NODATA});
  EXPECT_EQ(server_.asked("www.test"), 2U);
}

TEST_F(ResolverFamiliesTest, OneFamilyAloneKnowsNothingOfTheOther) {
  set_both("www.test", code(kServFail), no_address());
  EXPECT_EQ(look_up("www.test", AF_INET), Found{EAI_AGAIN});
  EXPECT_EQ(server_.asked("www.test", kDnsAaaa), 0U);
  EXPECT_EQ(look_up("www.test", AF_INET6), Found{EAI_NODATA});
  EXPECT_EQ(server_.asked("www.test", kDnsAaaa), 1U);
}

TEST_F(ResolverFamiliesTest, AnAliasWithoutItsTargetIsNoAddress) {
  server_.set("www.test", {.records = {{"www.test", kDnsCname, "other.test"}}});
  server_.set("other.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), Found{EAI_NODATA});
  EXPECT_EQ(server_.asked("other.test"), 0U);
}

TEST_F(ResolverFamiliesTest, TheSearchGoesOnOnlyWithAVerdict) {
  options_.files.servers = {server_.address()};
  test_support::write_file(files_.path("resolv.conf"), "search one.test two.test\n");
  set_both("www.one.test", code(kServFail), no_address());
  set_both("www.two.test", {.v4 = {"192.0.2.2"}}, no_address());
  EXPECT_EQ(look_up("www", AF_UNSPEC), Found{EAI_AGAIN});
  EXPECT_EQ(server_.asked("www.two.test"), 0U);
  set_both("www.one.test", code(kNxDomain), no_address());
  EXPECT_EQ(look_up("www", AF_UNSPEC), (Found{0, {"192.0.2.2"}}));
}

// RFC 7686, 2.
TEST_F(ResolverFamiliesTest, OnionNamesAreNotAskedFor) {
  for (const char* name : {"onion", "www.onion", "www.Onion."}) {
    EXPECT_EQ(look_up(name, AF_UNSPEC), Found{EAI_NONAME}) << name;
  }
  EXPECT_EQ(server_.asked_in_all(), 0U);
}

TEST_F(ResolverFamiliesTest, OnionNamesAreNotAskedForBelowASearchDomain) {
  options_.files.servers = {server_.address()};
  test_support::write_file(files_.path("resolv.conf"), "search one.test\noptions ndots:5\n");
  set_both("www.onion.one.test", {.v4 = {"192.0.2.1"}}, no_address());
  EXPECT_EQ(look_up("www.onion", AF_UNSPEC), Found{EAI_NONAME});
  EXPECT_EQ(look_up("www.Onion.", AF_UNSPEC), Found{EAI_NONAME});
  EXPECT_EQ(server_.asked_in_all(), 0U);
}

}  // namespace

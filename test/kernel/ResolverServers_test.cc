#include <sys/resource.h>
#include <sys/socket.h>

#include "kernel/Resolver.h"
#include "kernel/ResolverKit.h"
#include "support/UdpSocket.h"

using namespace test_support;

// What servers do wrong, and what the resolver makes of it.

namespace {

using How = DnsReply::How;

class ResolverServersTest : public test_support::ResolverTest {
 protected:
  ResolverServersTest() { nobody_.connect_to(nobody_.port()); }
  // An address of 127.0.0.1 where nobody listens, and nobody will.
  std::string nobody() const { return "127.0.0.1:" + std::to_string(nobody_.port()); }

 private:
  test_support::UdpSocket nobody_;  // receives only from itself
};

}  // namespace

TEST_F(ResolverServersTest, AnAnswerThatWasCutOffIsAskedForByTcp) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}, .only_tcp = true});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked_by_tcp(), 1U);
  EXPECT_EQ(look_up("www.test", AF_UNSPEC).addresses.size(), 2U);
  EXPECT_EQ(server_.asked_by_tcp(), 3U);
}

TEST_F(ResolverServersTest, SilenceIsAskedAgainThenGivenUp) {
  be_impatient();
  server_.set("www.test", {.how = How::kDrop});
  EXPECT_EQ(look_up_patiently("www.test"), Found{EAI_AGAIN});
  EXPECT_TRUE(server_.wait_for_questions("www.test", 2));
  EXPECT_EQ(server_.asked("www.test"), 2U);
}

TEST_F(ResolverServersTest, ALostQuestionIsAskedAgain) {
  be_impatient(500);
  server_.set("www.test", {.how = How::kDrop});
  Asker asker;
  resolver().resolve("www.test", AF_INET, &asker);
  ASSERT_TRUE(server_.wait_for_questions("www.test", 1));
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  pass_first_limit();
  ASSERT_TRUE(server_.wait_for_questions("www.test", 2));
  ASSERT_TRUE(asker.wait());
  EXPECT_EQ(asker.error(), 0);
}

TEST_F(ResolverServersTest, FailuresAreNotRemembered) {
  server_.set("www.test", {.rcode = 2});
  EXPECT_EQ(look_up("www.test"), Found{EAI_AGAIN});
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverServersTest, AServerThatFailsOrRefusesIsAskedAgain) {
  server_.set("servfail.test", {.rcode = 2});
  server_.set("formerr.test", {.rcode = 1});
  server_.set("notimp.test", {.rcode = 4});
  server_.set("refused.test", {.rcode = 5});
  EXPECT_EQ(look_up("servfail.test"), Found{EAI_AGAIN});
  EXPECT_EQ(look_up("notimp.test"), Found{EAI_AGAIN});
  EXPECT_EQ(look_up("formerr.test"), Found{EAI_AGAIN});
  EXPECT_EQ(look_up("refused.test"), Found{EAI_AGAIN});
  EXPECT_EQ(server_.asked_in_all(), 8U);
}

TEST_F(ResolverServersTest, ForgedAndBrokenAnswersAreNotBelieved) {
  const std::pair<const char*, How> cases[] = {{"garbage.test", How::kGarbage},
                                               {"id.test", How::kWrongId},
                                               {"question.test", How::kWrongQuestion}};
  be_impatient();
  for (const auto& [host, how] : cases) {
    server_.set(host, {.v4 = {"192.0.2.66"}, .how = how});
    EXPECT_EQ(look_up_patiently(host), Found{EAI_AGAIN}) << host;
    EXPECT_TRUE(server_.wait_for_questions(host, 2)) << host;
    EXPECT_EQ(server_.asked(host), 2U) << host;
  }
}

TEST_F(ResolverServersTest, HalfAMessageIsNoAnswer) {
  server_.set("www.test", {.v4 = {"192.0.2.66"}, .how = How::kCutMessage});
  EXPECT_EQ(look_up("www.test"), Found{EAI_FAIL});
}

TEST_F(ResolverServersTest, AStreamThatEndsIsNoAnswer) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .how = How::kCloseStream});
  EXPECT_EQ(look_up("www.test"), Found{EAI_AGAIN});
  EXPECT_EQ(server_.asked_by_tcp(), 2U);
}

// Whatever the bytes: each request ends, and nothing else does.
TEST_F(ResolverServersTest, CorruptedAnswersDoNoHarm) {
  options_.files.timeout_ms = 2;
  options_.cache.ttl_max_ns = 0;
  options_.cache.negative_ttl_ns = 0;
  options_.cache.stale_ns = 0;
  server_.set("www.test", {.v4 = {"192.0.2.1", "192.0.2.2"},
                           .v6 = {"2001:db8::1"},
                           .how = How::kCorrupted,
                           .alias = "other.test"});
  size_t found = 0;
  for (int i = 0; i < 1000; i++) {
    Asker asker;
    resolver().resolve("www.test", i % 2 ? AF_UNSPEC : AF_INET, &asker);
    pass_until_told(asker);
    EXPECT_EQ(asker.times_told(), 1U);
    found += asker.error() == 0 ? 1 : 0;
  }
  EXPECT_GT(found, 0U);
  EXPECT_LT(found, 1000U);
}

TEST_F(ResolverServersTest, TheNextServerIsAskedWhenOneDoesNotKnow) {
  FakeDnsServer bad;
  bad.set_others({.rcode = 2});
  options_.files.servers = {bad.address(), server_.address()};
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(bad.asked_in_all(), 1U);
}

TEST_F(ResolverServersTest, OfSeveralServersEachMayFailOnce) {
  FakeDnsServer other;
  other.set_others({.rcode = 5});
  server_.set_others({.rcode = 2});
  options_.files.servers = {other.address(), server_.address()};
  EXPECT_EQ(look_up("www.test"), Found{EAI_AGAIN});
  EXPECT_EQ(other.asked_in_all(), 1U);
  EXPECT_EQ(server_.asked_in_all(), 1U);
}

TEST_F(ResolverServersTest, TheNextServerIsAskedWhenOneIsSilent) {
  be_impatient(500);
  FakeDnsServer silent;
  silent.set_others({.how = How::kDrop});
  options_.files.servers = {silent.address(), server_.address()};
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  Asker asker;
  resolver().resolve("www.test", AF_INET, &asker);
  ASSERT_TRUE(silent.wait_for_questions("www.test", 1));
  pass_first_limit();
  ASSERT_TRUE(server_.wait_for_questions("www.test", 1));
  ASSERT_TRUE(asker.wait());
  EXPECT_EQ(asker.texts(), std::vector<std::string>{"192.0.2.1"});
}

TEST_F(ResolverServersTest, TheNextServerIsAskedAtOnceWhereNobodyListens) {
  options_.files.servers = {nobody(), server_.address()};
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverServersTest, WithoutAnyServerTheAnswerComesAtOnce) {
  options_.files.servers = {nobody()};
  EXPECT_EQ(look_up("www.test"), Found{EAI_AGAIN});
}

TEST_F(ResolverServersTest, ANameThatDoesNotExistIsNotAskedOfOthers) {
  FakeDnsServer other;
  options_.files.servers = {server_.address(), other.address()};
  EXPECT_EQ(look_up("none.test"), Found{EAI_NONAME});
  EXPECT_EQ(other.asked_in_all(), 0U);
}

TEST_F(ResolverServersTest, OneFamilyIsAnsweredWhenTheOtherIsNotInTime) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 3600, .how = How::kDropV6});
  Asker asker;
  resolver().resolve("www.test", AF_UNSPEC, &asker);
  ASSERT_TRUE(server_.wait_for_questions("www.test", 2));
  EXPECT_EQ(asker.times_told(), 0U);
  pass(kTimeoutNs);
  ASSERT_TRUE(asker.wait());
  EXPECT_EQ(asker.texts(), std::vector<std::string>{"192.0.2.1"});
  // And is believed for half a minute.
  pass_seconds(29);
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test"), 2U);
  pass_seconds(1);
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}});
  EXPECT_EQ(look_up("www.test", AF_UNSPEC).addresses.size(), 2U);
}

TEST_F(ResolverServersTest, OldAddressesServeWhileNoServerCanBeReached) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 60});
  EXPECT_EQ(look_up("www.test").error, 0);
  pass_seconds(60);
  server_.set("www.test", {.rcode = 2});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test"), 3U);
  // Not each look-up waits for the failure.
  pass_seconds(29);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test"), 3U);
  pass_seconds(1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked("www.test"), 5U);
  // An hour is the limit.
  pass_seconds(3600 - 30);
  EXPECT_EQ(look_up("www.test"), Found{EAI_AGAIN});
}

TEST_F(ResolverServersTest, OldAddressesEndWhenTheNameDoes) {
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 60});
  EXPECT_EQ(look_up("www.test").error, 0);
  pass_seconds(60);
  server_.set("www.test", {.rcode = 3});
  EXPECT_EQ(look_up("www.test"), Found{EAI_NONAME});
}

TEST_F(ResolverServersTest, WithoutDescriptorsTheAnswerSaysSo) {
  server_.set("first.test", {.v4 = {"192.0.2.1"}, .ttl_s = 1});
  server_.set("www.test", {.v4 = {"192.0.2.2"}});
  EXPECT_EQ(look_up("first.test").error, 0);
  struct rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  struct rlimit none = limit;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  Asker asker;
  resolver().resolve("www.test", AF_UNSPEC, &asker);
  const bool told = asker.wait();
  pass_seconds(1);  // also the look at the files fails now
  const Found stale = look_up("first.test");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(told);
  EXPECT_EQ(asker.error(), EAI_SYSTEM);
  EXPECT_EQ(asker.system_error(), EMFILE);
  EXPECT_EQ(stale, (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.2"}}));
}

TEST_F(ResolverServersTest, TheStopEndsWhatWaits) {
  options_.max_asking = 2;
  server_.hold();
  std::vector<Asker> askers(8);
  for (size_t i = 0; i < askers.size(); i++) {
    resolver().resolve("n" + std::to_string(i / 2) + ".test", AF_INET, &askers[i]);
  }
  ASSERT_TRUE(server_.wait_for_questions("n0.test", 1));
  runtime_->stop();
  for (Asker& asker : askers) {
    EXPECT_EQ(asker.times_told(), 1U);
    EXPECT_EQ(asker.error(), EAI_CANCELED);
  }
  Asker late;
  resolver().resolve("late.test", AF_INET, &late);
  EXPECT_EQ(late.times_told(), 1U);
  EXPECT_EQ(late.error(), EAI_CANCELED);
  Asker numeric;
  resolver().resolve("192.0.2.1", AF_INET, &numeric);
  EXPECT_EQ(numeric.error(), 0);
}

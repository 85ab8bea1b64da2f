#include "kernel/ResolverFiles.h"

#include "kernel/ResolverKit.h"

using namespace test_support;
using workflow::HostsFile;
using workflow::kNsPerSec;
using workflow::numeric_host_and_port;
using workflow::ResolvConf;

namespace {

class ResolverFilesTest : public test_support::ResolverTest {
 protected:
  void write_hosts(const std::string& text) { write_file(files_.path("hosts"), text); }
  void write_conf(const std::string& text) { write_file(files_.path("resolv.conf"), text); }
};

std::vector<std::string> Names(std::initializer_list<const char*> names) {
  return {names.begin(), names.end()};
}

}  // namespace

TEST(HostsFile, NamesOfALineShareItsAddress) {
  const HostsFile hosts(
      "# comment\n"
      "192.0.2.1 One one-alias # a name \n"
      "\t2001:db8::1\tone\r\n"
      "192.0.2.2 one two.\n"
      "not-an-address three\n"
      "192.0.2.4\n"
      "\n"
      "192.0.2.5 last");
  EXPECT_EQ(texts_of(hosts.find("one", AF_UNSPEC)),
            Names({"192.0.2.1", "2001:db8::1", "192.0.2.2"}));
  EXPECT_EQ(texts_of(hosts.find("one", AF_INET6)), Names({"2001:db8::1"}));
  EXPECT_EQ(texts_of(hosts.find("one-alias", AF_INET)), Names({"192.0.2.1"}));
  EXPECT_EQ(texts_of(hosts.find("two", AF_INET)), Names({"192.0.2.2"}));
  EXPECT_EQ(texts_of(hosts.find("last", AF_INET)), Names({"192.0.2.5"}));
  EXPECT_TRUE(hosts.find("two", AF_INET6).empty());
  EXPECT_TRUE(hosts.find("three", AF_UNSPEC).empty());
  EXPECT_TRUE(hosts.find("a", AF_UNSPEC).empty());
  EXPECT_EQ(hosts.size(), 4U);
}

TEST(HostsFile, LocalhostIsLoopbackWhateverTheFileSays) {
  const HostsFile hosts("192.0.2.1 localhost x.localhost notlocalhost\n");
  EXPECT_EQ(texts_of(hosts.find("localhost", AF_INET)), Names({"127.0.0.1"}));
  EXPECT_EQ(texts_of(hosts.find("x.localhost", AF_INET6)), Names({"::1"}));
  EXPECT_EQ(texts_of(hosts.find("notlocalhost", AF_INET)), Names({"192.0.2.1"}));
}

TEST(ResolvConf, KnowsServersDomainsAndOptions) {
  const ResolvConf conf(
      "# nameserver 192.0.2.66\n; nameserver 192.0.2.67\n"
      "nameserver 192.0.2.1\nnameserver  [2001:db8::1]:5353 \nnameserver nonsense\n"
      "domain first.test\n"
      "search One.test two.test. -bad/.test three.test\n"
      "options ndots:2 timeout:3 attempts:4 rotate edns0\n"
      "sortlist 192.0.2.0/24\n");
  EXPECT_EQ(texts_of(conf.servers), Names({"192.0.2.1", "2001:db8::1"}));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(conf.servers[0].address).sin_port, htons(53));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in6&>(conf.servers[1].address).sin6_port, htons(5353));
  EXPECT_EQ(conf.domains, Names({"one.test", "two.test", "three.test"}));
  EXPECT_EQ(conf.ndots, 2);
  EXPECT_EQ(conf.timeout_ns, 3 * kNsPerSec);
  EXPECT_EQ(conf.attempts, 4);
  EXPECT_TRUE(conf.rotate);
}

TEST(ResolvConf, DefaultsAndBoundsAreThoseOfTheManual) {
  const ResolvConf empty("");
  EXPECT_TRUE(empty.servers.empty());
  EXPECT_TRUE(empty.domains.empty());
  EXPECT_EQ(empty.ndots, 1);
  EXPECT_EQ(empty.timeout_ns, 5 * kNsPerSec);
  EXPECT_EQ(empty.attempts, 2);
  EXPECT_FALSE(empty.rotate);
  const ResolvConf large(
      "options ndots:99 timeout:99999999999 attempts:99 timeout:0 attempts:-1\n"
      "search a b c d e f g h\noptions timeout:1000\n");
  EXPECT_EQ(large.ndots, ResolvConf::kMaxNdots);
  EXPECT_EQ(large.timeout_ns, ResolvConf::kMaxTimeoutS * kNsPerSec);
  EXPECT_EQ(large.attempts, ResolvConf::kMaxAttempts);
  EXPECT_EQ(large.domains.size(), ResolvConf::kMaxDomains);
}

TEST(ResolvConf, CandidatesFollowNdots) {
  ResolvConf conf("search one.test two.test\n");
  EXPECT_EQ(conf.candidates("host"), Names({"host.one.test", "host.two.test", "host"}));
  EXPECT_EQ(conf.candidates("a.host"), Names({"a.host", "a.host.one.test", "a.host.two.test"}));
  EXPECT_EQ(conf.candidates("host."), Names({"host"}));
  conf.ndots = 2;
  EXPECT_EQ(conf.candidates("a.host"), Names({"a.host.one.test", "a.host.two.test", "a.host"}));
  const std::string longest = std::string(63, 'a') + "." + std::string(63, 'a') + "." +
                              std::string(63, 'a') + "." + std::string(61, 'a');
  EXPECT_EQ(conf.candidates(longest), std::vector<std::string>{longest});
}

TEST(HostAddress, PortsMayFollowNumericHosts) {
  const std::pair<const char*, int> good[] = {
      {"192.0.2.1", 53},     {"192.0.2.1:1", 1},           {"2001:db8::1", 53},
      {"[2001:db8::1]", 53}, {"[2001:db8::1]:5353", 5353}, {"fe80::1%1", 53}};
  for (const auto& [text, port] : good) {
    const auto address = numeric_host_and_port(text, 53);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(address->address).sin_port,
              htons(static_cast<uint16_t>(port)))
        << text;
  }
  for (const char* text : {"", ":", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:+1",
                           "[2001:db8::1", "[2001:db8::1]53", "[]:53", "host:53", "192.0.2.1:1 "}) {
    EXPECT_FALSE(numeric_host_and_port(text, 53)) << text;
  }
}

TEST_F(ResolverFilesTest, TheHostsFileGoesBeforeTheServer) {
  write_hosts("192.0.2.9 www.test\n");
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}});
  EXPECT_EQ(look_up("www.TEST"), (Found{0, {"192.0.2.9"}}));
  EXPECT_EQ(look_up("www.test."), (Found{0, {"192.0.2.9"}}));
  EXPECT_EQ(look_up("www.test", AF_UNSPEC), (Found{0, {"192.0.2.9"}}));
  EXPECT_EQ(server_.asked_in_all(), 0U);
  // It knows nothing of this family.
  EXPECT_EQ(look_up("www.test", AF_INET6), (Found{0, {"2001:db8::1"}}));
}

TEST_F(ResolverFilesTest, AChangedHostsFileIsReadWithinASecond) {
  write_hosts("192.0.2.9 www.test\n");
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.9"}}));
  write_hosts("192.0.2.10 www.test\n");
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.9"}}));
  pass_seconds(1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.10"}}));
  ASSERT_EQ(std::remove(files_.path("hosts").c_str()), 0);
  pass_seconds(1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  // Also what a server has said gives way to the file.
  write_hosts("192.0.2.11 www.test\n");
  pass_seconds(1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.11"}}));
}

TEST_F(ResolverFilesTest, ChangedServersAreAskedWithinASecond) {
  FakeDnsServer other;
  options_.files.servers.clear();
  write_conf("nameserver " + server_.address() + "\n");
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  other.set("www.test", {.v4 = {"192.0.2.2"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  write_conf("nameserver " + other.address() + "\n");
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  pass_seconds(1);
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.2"}}));
}

TEST_F(ResolverFilesTest, AnAnswerOfAServerThatWasReplacedIsNotRemembered) {
  FakeDnsServer other;
  options_.files.servers.clear();
  options_.files.timeout_ms = 10'000;
  write_conf("nameserver " + server_.address() + "\n");
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  other.set("www.test", {.v4 = {"192.0.2.2"}});
  server_.hold();
  test_support::Asker asker;
  resolver().resolve("www.test", AF_INET, &asker);
  ASSERT_TRUE(server_.wait_for_questions("www.test", 1));
  write_conf("nameserver " + other.address() + "\n");
  pass_seconds(1);
  EXPECT_EQ(look_up("other.test"), Found{EAI_NONAME});  // has the files looked at
  server_.release();
  ASSERT_TRUE(asker.wait());
  EXPECT_EQ(asker.texts(), std::vector<std::string>{"192.0.2.1"});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.2"}}));
}

TEST_F(ResolverFilesTest, DomainsAreTriedInTurn) {
  write_conf("search one.test two.test\n");
  server_.set("host.one.test", {.v6 = {"2001:db8::1"}});
  server_.set("host.two.test", {.v4 = {"192.0.2.2"}});
  EXPECT_EQ(look_up("host"), (Found{0, {"192.0.2.2"}}));
  EXPECT_EQ(server_.asked("host.one.test"), 1U);
  EXPECT_EQ(server_.asked("host"), 0U);
  EXPECT_EQ(look_up("host."), Found{EAI_NONAME});
  EXPECT_EQ(server_.asked("host"), 1U);
  server_.set("part.two.test", {});
  EXPECT_EQ(look_up("part"), Found{EAI_NODATA});
}

TEST_F(ResolverFilesTest, ASilentServerEndsTheTrialOfDomains) {
  write_conf("search one.test two.test\n");
  be_impatient();
  server_.set("host.one.test", {.how = test_support::DnsReply::How::kDrop});
  EXPECT_EQ(look_up_patiently("host"), Found{EAI_AGAIN});
  EXPECT_TRUE(server_.wait_for_questions("host.one.test", 2));
  EXPECT_EQ(server_.asked("host.one.test"), 2U);
  EXPECT_EQ(server_.asked("host.two.test"), 0U);
}

TEST_F(ResolverFilesTest, OptionRotateMakesServersTakeTurns) {
  FakeDnsServer other;
  options_.files.servers = {server_.address(), other.address()};
  write_conf("options rotate\n");
  for (int i = 0; i < 10; i++) {
    EXPECT_EQ(look_up("n" + std::to_string(i) + ".test"), Found{EAI_NONAME});
  }
  EXPECT_EQ(server_.asked_in_all(), 5U);
  EXPECT_EQ(other.asked_in_all(), 5U);
}

TEST_F(ResolverFilesTest, WithoutResolvConfTheLocalServerIsAsked) {
  workflow::ResolverFiles::Options options{.hosts_path = "", .resolv_conf_path = ""};
  for (const std::string& path : {std::string(), files_.path("none"), files_.path("")}) {
    options.resolv_conf_path = path;
    workflow::ResolverFiles read(options);
    EXPECT_TRUE(read.refresh());
    EXPECT_FALSE(read.refresh());
    EXPECT_EQ(texts_of(read.conf()->servers), Names({"127.0.0.1"}));
  }
}

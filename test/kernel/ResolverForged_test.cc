#include <sys/socket.h>

#include "kernel/Resolver.h"
#include "kernel/ResolverKit.h"

// Messages that are no answer to the question, and records that do not concern it.

namespace {

using namespace test_support;

constexpr size_t kHeader = 12;
constexpr size_t kFlagsAt = 2;
constexpr size_t kQuestionsAt = 4;
constexpr size_t kAnswersAt = 6;

class ResolverForgedTest : public test_support::ResolverTest {};

using Edit = std::function<void(std::string&)>;

Edit flip_flags(uint32_t flags) {
  return [flags](std::string& message) {
    message[kFlagsAt] = static_cast<char>(message[kFlagsAt] ^ static_cast<char>(flags >> 8));
    message[kFlagsAt + 1] = static_cast<char>(message[kFlagsAt + 1] ^ static_cast<char>(flags));
  };
}

// What is not even looked at: it may come from somebody who only guesses.
struct Ignored {
  const char* name;
  Edit edit;
};

std::vector<Ignored> ignored_messages() {
  std::vector<Ignored> cases = {
      {"query.test", flip_flags(0x8000)},
      {"empty.test", [](std::string& message) { message.clear(); }},
      {"byte.test", [](std::string& message) { message.resize(1); }},
      {"short.test", [](std::string& message) { message.resize(kHeader - 1); }},
      {"header.test", [](std::string& message) { message.resize(kHeader); }},
      {"no-question.test", [](std::string& message) { set16(message, kQuestionsAt, 0); }},
      {"two-questions.test",
       [](std::string& message) {
         const std::string question = message.substr(kHeader, message.find('\0', kHeader) + 5 - 12);
         message.insert(kHeader, question);
         set16(message, kQuestionsAt, 2);
       }},
      {"type.test",
       [](std::string& message) { set16(message, message.find('\0', kHeader) + 1, 16); }},
      {"class.test",
       [](std::string& message) { set16(message, message.find('\0', kHeader) + 3, 3); }},
      {"query-truncated.test", flip_flags(0x8000 | kDnsTruncated)},
      {"query-refused.test", flip_flags(0x8000 | 5)},
  };
  static const char* const kOpcodes[] = {"op1.test",  "op2.test",  "op3.test",  "op4.test",
                                         "op5.test",  "op6.test",  "op7.test",  "op8.test",
                                         "op9.test",  "op10.test", "op11.test", "op12.test",
                                         "op13.test", "op14.test", "op15.test"};
  for (uint32_t opcode = 1; opcode < 16; opcode++) {
    cases.push_back({kOpcodes[opcode - 1], flip_flags(opcode << 11)});
  }
  return cases;
}

TEST_F(ResolverForgedTest, WhatIsNoAnswerToTheQuestionIsIgnored) {
  be_impatient();
  for (const Ignored& ignored : ignored_messages()) {
    server_.set(ignored.name, {.v4 = {"192.0.2.66"}, .edit = ignored.edit});
    EXPECT_EQ(look_up_patiently(ignored.name), Found{EAI_AGAIN}) << ignored.name;
    EXPECT_TRUE(server_.wait_for_questions(ignored.name, 2)) << ignored.name;
    EXPECT_EQ(server_.asked(ignored.name), 2U) << ignored.name;
    EXPECT_EQ(server_.asked_by_tcp(), 0U) << ignored.name;
  }
}

TEST_F(ResolverForgedTest, TheAnswerIsWaitedForBehindWhatIsIgnored) {
  for (const Ignored& ignored : ignored_messages()) {
    server_.set(
        ignored.name,
        {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}, .edit = ignored.edit, .then_unedited = true});
    EXPECT_EQ(look_up(ignored.name, AF_UNSPEC).addresses.size(), 2U) << ignored.name;
    EXPECT_EQ(server_.asked(ignored.name), 2U) << ignored.name;
  }
}

TEST_F(ResolverForgedTest, CountsThatLieMakeTheMessageBroken) {
  for (const uint32_t count : {2U, 255U, 65535U}) {
    const std::string name = "n" + std::to_string(count) + ".test";
    server_.set(name, {.v4 = {"192.0.2.66"}, .edit = [count](std::string& message) {
                         set16(message, kAnswersAt, count);
                       }});
    EXPECT_EQ(look_up(name), Found{EAI_FAIL}) << count;
  }
}

TEST_F(ResolverForgedTest, RecordsThatAreNotCountedAreNoAnswer) {
  server_.set("www.test", {.v4 = {"192.0.2.66"},
                           .edit = [](std::string& message) { set16(message, kAnswersAt, 0); }});
  EXPECT_EQ(look_up("www.test"), Found{EAI_NODATA});
}

TEST_F(ResolverForgedTest, AddressesOfAnotherNameAreNotBelieved) {
  server_.set("www.test", {.records = {{"other.test", kDnsA, "192.0.2.66"}}});
  EXPECT_EQ(look_up("www.test"), Found{EAI_FAIL});
  server_.set("both.test", {.v4 = {"192.0.2.1"}, .records = {{"other.test", kDnsA, "192.0.2.66"}}});
  EXPECT_EQ(look_up("both.test"), (Found{0, {"192.0.2.1"}}));
}

// RFC 1034, 5.3.3.
TEST_F(ResolverForgedTest, UnrelatedAliasesDoNotHideTheAddresses) {
  server_.set("a.test",
              {.v4 = {"192.0.2.1"},
               .records = {{"x.test", kDnsCname, "y.test"}, {"y.test", kDnsA, "192.0.2.66"}}});
  EXPECT_EQ(look_up("a.test"), (Found{0, {"192.0.2.1"}}));
  server_.set("b.test",
              {.records = {{"b.test", kDnsA, "192.0.2.1"}, {"x.test", kDnsCname, "y.test"}}});
  EXPECT_EQ(look_up("b.test"), (Found{0, {"192.0.2.1"}}));
  server_.set("c.test", {.records = {{"c.test", kDnsCname, "d.test"},
                                     {"d.test", kDnsA, "192.0.2.1"},
                                     {"x.test", kDnsCname, "y.test"}}});
  EXPECT_EQ(look_up("c.test"), (Found{0, {"192.0.2.1"}}));
  server_.set("six.test", {.v6 = {"2001:db8::1"}, .records = {{"x.test", kDnsCname, "y.test"}}});
  EXPECT_EQ(look_up("six.test", AF_INET6), (Found{0, {"2001:db8::1"}}));
}

TEST_F(ResolverForgedTest, TheOrderOfTheRecordsDoesNotMatter) {
  server_.set("a.test", {.records = {{"c.test", kDnsA, "192.0.2.1"},
                                     {"b.test", kDnsCname, "c.test"},
                                     {"a.test", kDnsCname, "b.test"}}});
  EXPECT_EQ(look_up("a.test"), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverForgedTest, EveryAliasOfANameIsFollowed) {
  server_.set("a.test", {.records = {{"a.test", kDnsCname, "b.test"},
                                     {"a.test", kDnsCname, "c.test"},
                                     {"b.test", kDnsA, "192.0.2.1"},
                                     {"c.test", kDnsA, "192.0.2.2"}}});
  EXPECT_EQ(look_up("a.test"), (Found{0, {"192.0.2.1", "192.0.2.2"}}));
}

TEST_F(ResolverForgedTest, RecordsThatMakeNoSenseDoNotSayThatThereIsNoAddress) {
  const DnsReply replies[] = {
      {.records = {{"one.test", kDnsCname, "two.test"}}},
      {.records = {{"one.test", kDnsCname, "two.test"}, {"two.test", kDnsA, "192.0.2.66"}}},
      {.records = {{"www.test", kDnsCname, "two.test"},
                   {"three.test", kDnsCname, "four.test"},
                   {"four.test", kDnsA, "192.0.2.66"}}},
      {.records = {{"www.test", kDnsCname, "two.test"}, {"www.test", kDnsCname, "three.test"}}},
      {.records = {{"www.test", kDnsCname, "b.test"}, {"b.test", kDnsCname, "www.test"}}},
      {.records = {{"www.test", kDnsCname, "www.test"}}}};
  for (const DnsReply& reply : replies) {
    server_.set("www.test", reply);
    EXPECT_EQ(look_up("www.test"), Found{EAI_FAIL}) << &reply - replies;
  }
  // None of them is remembered.
  server_.set("www.test", {.v4 = {"192.0.2.1"}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverForgedTest, TheNextServerIsAskedAfterABrokenAnswer) {
  test_support::FakeDnsServer bad;
  bad.set("cut.test", {.v4 = {"192.0.2.66"}, .how = DnsReply::How::kCutMessage});
  bad.set("odd.test", {.records = {{"one.test", kDnsCname, "two.test"}}});
  options_.files.servers = {bad.address(), server_.address()};
  for (const char* name : {"cut.test", "odd.test"}) {
    server_.set(name, {.v4 = {"192.0.2.1"}});
    EXPECT_EQ(look_up(name), (Found{0, {"192.0.2.1"}})) << name;
    EXPECT_EQ(bad.asked(name), 1U) << name;
  }
}

// The first server's answer by TCP is broken, forged or a failure of any code.
TEST_F(ResolverForgedTest, TheNextServerIsAskedAfterABrokenAnswerByTcp) {
  test_support::FakeDnsServer bad;
  options_.files.servers = {bad.address(), server_.address()};
  std::vector<DnsReply> replies = {
      {.v4 = {"192.0.2.66"}, .how = DnsReply::How::kCutMessage, .only_tcp = true},
      {.only_tcp = true, .records = {{"one.test", kDnsCname, "two.test"}}}};
  for (const int rcode : {1, 2, 6, 9, 15}) {
    replies.push_back({.rcode = rcode, .only_tcp = true});
  }
  for (size_t i = 0; i < replies.size(); i++) {
    const std::string name = "a" + std::to_string(i) + ".test";
    bad.set(name, replies[i]);
    server_.set(name, {.v4 = {"192.0.2.1"}, .only_tcp = i % 2 == 0});
    EXPECT_EQ(look_up(name), (Found{0, {"192.0.2.1"}})) << i;
  }
  EXPECT_EQ(bad.asked_by_tcp(), replies.size());
}

TEST_F(ResolverForgedTest, AnAnswerByTcpIsReadInPartsOfAnySize) {
  for (const bool one_by_one : {false, true}) {
    const std::string name = one_by_one ? "bytes.test" : "whole.test";
    server_.set(
        name, {.v4 = {"192.0.2.1", "192.0.2.2"}, .only_tcp = true, .in_single_bytes = one_by_one});
    EXPECT_EQ(look_up(name), (Found{0, {"192.0.2.1", "192.0.2.2"}})) << name;
  }
}

TEST_F(ResolverForgedTest, AMessageOfLengthZeroByTcpIsIgnored) {
  server_.set("www.test", {.v4 = {"192.0.2.1"},
                           .only_tcp = true,
                           .edit = [](std::string& message) { message.clear(); },
                           .then_unedited = true});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverForgedTest, WhatIsNoResponseIsIgnoredByTcpToo) {
  server_.set("www.test", {.v4 = {"192.0.2.1"},
                           .only_tcp = true,
                           .edit =
                               [](std::string& message) {
                                 message[2] &= 0x7f;
                                 message.back() = 66;  // another address
                               },
                           .then_unedited = true});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
  EXPECT_EQ(server_.asked_by_tcp(), 1U);
}

TEST_F(ResolverForgedTest, AChainIsFollowedInAnyCaseOfLetters) {
  server_.set("www.test", {.records = {{"WWW.test", kDnsCname, "B.test"},
                                       {"b.TEST", kDnsCname, "c.test"},
                                       {"C.test", kDnsA, "192.0.2.1"}}});
  EXPECT_EQ(look_up("www.test"), (Found{0, {"192.0.2.1"}}));
}

TEST_F(ResolverForgedTest, ANameThatPointsToItselfIsABrokenAnswer) {
  server_.set("www.test", {.v4 = {"192.0.2.66"}, .edit = [](std::string& message) {
                             const size_t record = message.find('\0', kHeader) + 5;
                             set16(message, record, 0xc000 | static_cast<uint32_t>(record));
                           }});
  EXPECT_EQ(look_up("www.test"), Found{EAI_FAIL});
}

}  // namespace

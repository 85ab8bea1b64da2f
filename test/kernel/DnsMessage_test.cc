#include "kernel/DnsMessage.h"

#include <gtest/gtest.h>
#include <netdb.h>

#include <ctime>
#include <string>
#include <vector>

#include "kernel/ResolverKit.h"
#include "support/DnsWire.h"
#include "util/Time.h"

namespace {

using test_support::dns_message;
using test_support::DnsRecord;
using test_support::kDnsA;
using test_support::kDnsAaaa;
using test_support::kDnsCname;
using test_support::kDnsResponse;
using test_support::kDnsTruncated;
using test_support::kDnsTxt;
using test_support::put16;
using test_support::put_record;
using test_support::set16;
using workflow::DnsAnswer;
using workflow::DnsMessage;
using workflow::kNsPerSec;

constexpr size_t kHeader = 12;
constexpr size_t kAnswersAt = 6;
// Behind the header and the question for www.test.
constexpr size_t kRecordsAt = kHeader + 10 + 4;

struct Read {
  int error = 0;
  std::vector<std::string> addresses = {};
  int64_t ttl_s = 0;

  bool operator==(const Read&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Read& read) {
  out << "error " << read.error << ", " << read.ttl_s << " s";
  for (const std::string& address : read.addresses) {
    out << ' ' << address;
  }
  return out;
}

Read read(const std::string& message, int family = AF_INET, const char* name = "www.test") {
  const DnsAnswer answer = DnsMessage::read(message, name, family);
  EXPECT_EQ(answer.ttl_ns % kNsPerSec, 0);
  return {answer.error, test_support::texts_of(answer.addresses), answer.ttl_ns / kNsPerSec};
}

// What this answer section means to who has asked for the IPv4 addresses of www.test.
Read read(const std::vector<DnsRecord>& records, uint32_t flags = kDnsResponse) {
  return read(dns_message(7, flags, "www.test", kDnsA, records));
}

// A message whose only record has these bytes.
std::string with_record(const std::string& record) {
  std::string message = dns_message(7, kDnsResponse, "www.test", kDnsA, {}) + record;
  set16(message, kAnswersAt, 1);
  return message;
}

// What stands behind the owner of an address record.
std::string address_record() {
  std::string bytes;
  put_record(bytes, {"", kDnsA, "192.0.2.1", 300});
  return bytes.substr(1);
}

std::string pointer_to(size_t at) {
  std::string bytes;
  put16(bytes, 0xc000 | static_cast<uint32_t>(at));
  return bytes;
}

const Read kFound = {0, {"192.0.2.1"}, 300};

TEST(DnsMessage, AddressesOfTheNameAreRead) {
  EXPECT_EQ(read({{"www.test", kDnsA, "192.0.2.1"}}), kFound);
  EXPECT_EQ(read({{"www.test", kDnsA, "192.0.2.1", 30}, {"WWW.tesT", kDnsA, "192.0.2.2", 20}}),
            (Read{0, {"192.0.2.1", "192.0.2.2"}, 20}));
  const std::string v6 = dns_message(7, kDnsResponse, "www.test", kDnsAaaa,
                                     {{"www.test", kDnsAaaa, "2001:db8::1", 9}});
  EXPECT_EQ(read(v6, AF_INET6), (Read{0, {"2001:db8::1"}, 9}));
}

TEST(DnsMessage, ResponseCodesAreVerdictsOrFailures) {
  for (uint32_t code = 0; code < 16; code++) {
    const int error = code == 0   ? EAI_NODATA
                      : code == 2 ? EAI_AGAIN
                      : code == 3 ? EAI_NONAME
                                  : EAI_FAIL;
    EXPECT_EQ(read({}, kDnsResponse | code), Read{error}) << code;
    // With another code than 0 there are no addresses, whatever stands there.
    EXPECT_EQ(read({{"www.test", kDnsA, "192.0.2.1"}}, kDnsResponse | code),
              code == 0 ? kFound : Read{error})
        << code;
  }
}

TEST(DnsMessage, OnlyAResponseToAQueryIsAResponse) {
  for (uint32_t flags = 0; flags <= 0xffff; flags++) {
    const std::string message = dns_message(7, flags, "www.test", kDnsA, {});
    const bool response = (flags & 0xf800) == 0x8000;
    ASSERT_EQ(DnsMessage::is_response(message), response) << flags;
    if (!response) {
      ASSERT_EQ(read(message), Read{EAI_FAIL}) << flags;
    }
  }
  const std::string whole = dns_message(7, kDnsResponse, "www.test", kDnsA, {});
  for (size_t size = 0; size < kHeader; size++) {
    EXPECT_FALSE(DnsMessage::is_response(whole.substr(0, size))) << size;
  }
  EXPECT_TRUE(DnsMessage::is_response(whole.substr(0, kHeader)));
}

TEST(DnsMessage, TheQuestionHasToBeTheOneThatWasAsked) {
  const std::vector<DnsRecord> records = {{"www.test", kDnsA, "192.0.2.1"}};
  const std::string good = dns_message(7, kDnsResponse, "www.test", kDnsA, records);
  EXPECT_EQ(read(good), kFound);
  EXPECT_EQ(read(good, AF_INET, "WWW.TEST"), kFound);
  EXPECT_EQ(read(good, AF_INET, "www.tes"), Read{EAI_FAIL});
  EXPECT_EQ(read(good, AF_INET, "test"), Read{EAI_FAIL});
  EXPECT_EQ(read(good, AF_INET6), Read{EAI_FAIL});
  for (const uint32_t questions : {0U, 2U, 0xffffU}) {
    std::string message = good;
    set16(message, 4, questions);
    EXPECT_EQ(read(message), Read{EAI_FAIL}) << questions;
  }
  std::string other_class = good;
  set16(other_class, kRecordsAt - 2, 3);
  EXPECT_EQ(read(other_class), Read{EAI_FAIL});
}

// A dot inside a label is none between two.
TEST(DnsMessage, LabelsAreNotTheirText) {
  EXPECT_EQ(read(with_record(std::string("\x08www.test\0", 10) + address_record())),
            Read{EAI_NODATA});
  EXPECT_EQ(read(with_record(std::string("\x03www\x04test\0", 10) + address_record())), kFound);
}

TEST(DnsMessage, WhatIsNotWholeIsBroken) {
  const std::string whole =
      dns_message(7, kDnsResponse, "www.test", kDnsA,
                  {{"www.test", kDnsCname, "a.test"}, {"a.test", kDnsA, "192.0.2.1"}});
  EXPECT_EQ(read(whole), kFound);
  for (size_t size = 0; size < whole.size(); size++) {
    EXPECT_EQ(read(whole.substr(0, size)), Read{EAI_FAIL}) << size;
  }
  EXPECT_EQ(read(whole + "what follows is not looked at"), kFound);
}

TEST(DnsMessage, ABrokenMessageIsNoWordThatThereIsNoSuchName) {
  std::string message = dns_message(7, kDnsResponse | 3, "www.test", kDnsA, {});
  EXPECT_EQ(read(message), Read{EAI_NONAME});
  set16(message, kAnswersAt, 1);
  EXPECT_EQ(read(message), Read{EAI_FAIL});
}

TEST(DnsMessage, DataOfAnotherSizeThanItsTypeHasIsBroken) {
  for (const char* data : {"", "abc", "abcde", "abcdefghijklmnop"}) {
    std::string record;
    put_record(record, {"www.test", kDnsTxt, data});
    set16(record, 10, kDnsA);
    EXPECT_EQ(read(with_record(record)), Read{EAI_FAIL}) << data;
    set16(record, 12, 3);  // of another class it is none of our business
    EXPECT_EQ(read(with_record(record)), Read{EAI_NODATA}) << data;
  }
  std::string alias;
  put_record(alias, {"www.test", kDnsTxt,
                     std::string("\x01"
                                 "a\0x",
                                 4)});
  set16(alias, 10, kDnsCname);
  EXPECT_EQ(read(with_record(alias)), Read{EAI_FAIL});
}

TEST(DnsMessage, OtherTypesAndClassesAreLeftOut) {
  EXPECT_EQ(read({{"www.test", kDnsTxt, "text"},
                  {"www.test", kDnsAaaa, "2001:db8::1"},
                  {"www.test", kDnsA, "192.0.2.3", 1, 3},
                  {"www.test", kDnsA, "192.0.2.1"}}),
            kFound);
  EXPECT_EQ(read({{"www.test", kDnsCname, "a.test", 1, 3}, {"a.test", kDnsA, "192.0.2.1"}}),
            Read{EAI_NODATA});
}

TEST(DnsMessage, UnrelatedRecordsAreLeftOut) {
  EXPECT_EQ(read({{"x.test", kDnsA, "192.0.2.66"}}), Read{EAI_NODATA});
  EXPECT_EQ(read({{"x.test", kDnsCname, "y.test"}, {"y.test", kDnsA, "192.0.2.66"}}),
            Read{EAI_NODATA});
  EXPECT_EQ(read({{"x.test", kDnsCname, "y.test", 1},
                  {"y.test", kDnsA, "192.0.2.66", 1},
                  {"www.test", kDnsA, "192.0.2.1"}}),
            kFound);
  // Nor do records lead backwards.
  EXPECT_EQ(read({{"x.test", kDnsCname, "www.test"}, {"x.test", kDnsA, "192.0.2.66"}}),
            Read{EAI_NODATA});
}

TEST(DnsMessage, AChainIsFollowedInAnyOrder) {
  const std::vector<DnsRecord> records = {{"www.test", kDnsCname, "B.test", 400},
                                          {"b.TEST", kDnsCname, "c.test", 200},
                                          {"c.test", kDnsA, "192.0.2.1", 300}};
  EXPECT_EQ(read(records), (Read{0, {"192.0.2.1"}, 200}));
  EXPECT_EQ(read(std::vector<DnsRecord>(records.rbegin(), records.rend())),
            (Read{0, {"192.0.2.1"}, 200}));
}

TEST(DnsMessage, AChainEndsAtTheFirstNameWithAnAddress) {
  EXPECT_EQ(read({{"www.test", kDnsCname, "b.test", 1},
                  {"b.test", kDnsA, "192.0.2.66"},
                  {"www.test", kDnsA, "192.0.2.1"}}),
            kFound);
}

TEST(DnsMessage, OfTwoAliasesTheFirstIsFollowed) {
  EXPECT_EQ(read({{"www.test", kDnsCname, "b.test"},
                  {"www.test", kDnsCname, "c.test", 1},
                  {"c.test", kDnsA, "192.0.2.66", 1},
                  {"b.test", kDnsA, "192.0.2.1"}}),
            kFound);
}

TEST(DnsMessage, AnAliasWithoutItsTargetIsNoData) {
  EXPECT_EQ(read({{"www.test", kDnsCname, "b.test"}}), Read{EAI_NODATA});
  EXPECT_EQ(read({{"www.test", kDnsCname, "b.test"}}, kDnsResponse | 3), Read{EAI_NONAME});
  EXPECT_EQ(read({{"www.test", kDnsCname, ""}}), Read{EAI_NODATA});
}

TEST(DnsMessage, AChainHasALimit) {
  for (const size_t length : {DnsMessage::kMaxAliases, DnsMessage::kMaxAliases + 1}) {
    std::vector<DnsRecord> records;
    std::string owner = "www.test";
    for (size_t i = 0; i < length; i++) {
      std::string target = "a" + std::to_string(i);
      records.push_back({owner, kDnsCname, target});
      owner = target;
    }
    // Also if it leads to nothing.
    EXPECT_EQ(read(records).error, length > DnsMessage::kMaxAliases ? EAI_FAIL : EAI_NODATA);
    records.push_back({owner, kDnsA, "192.0.2.1"});
    EXPECT_EQ(read(records), length > DnsMessage::kMaxAliases ? Read{EAI_FAIL} : kFound);
  }
}

TEST(DnsMessage, ACircleOfAliasesIsBroken) {
  EXPECT_EQ(read({{"www.test", kDnsCname, "www.test"}}), Read{EAI_FAIL});
  EXPECT_EQ(read({{"www.test", kDnsCname, "b.test"}, {"b.test", kDnsCname, "WWW.test"}}),
            Read{EAI_FAIL});
  // A circle elsewhere does not matter.
  EXPECT_EQ(read({{"x.test", kDnsCname, "x.test"}, {"www.test", kDnsA, "192.0.2.1"}}), kFound);
}

TEST(DnsMessage, TimesBeyondTheSignAreNone) {
  EXPECT_EQ(read({{"www.test", kDnsA, "192.0.2.1", 0x7fffffff}}).ttl_s, 0x7fffffff);
  for (const uint32_t ttl_s : {0U, 0x80000000U, 0xffffffffU}) {
    EXPECT_EQ(read({{"www.test", kDnsA, "192.0.2.1", ttl_s}}), (Read{0, {"192.0.2.1"}, 0}));
    EXPECT_EQ(read({{"www.test", kDnsCname, "b", ttl_s}, {"b", kDnsA, "192.0.2.1"}}),
              (Read{0, {"192.0.2.1"}, 0}));
  }
}

TEST(DnsMessage, TheTimeOfWhatIsLeftOutCounts) {
  std::vector<DnsRecord> records;
  for (size_t i = 0; i <= DnsMessage::kMaxAddresses; i++) {
    records.push_back({"www.test", kDnsA, "10.0.0." + std::to_string(i)});
  }
  records.back().ttl_s = 5;
  const Read result = read(records);
  EXPECT_EQ(result.addresses.size(), DnsMessage::kMaxAddresses);
  EXPECT_EQ(result.addresses.front(), "10.0.0.0");
  EXPECT_EQ(result.ttl_s, 5);
}

TEST(DnsMessage, WhatWasCutOffIsNotMissing) {
  EXPECT_EQ(read({}, kDnsResponse | kDnsTruncated), Read{EAI_FAIL});
  EXPECT_EQ(read({{"www.test", kDnsCname, "b.test"}}, kDnsResponse | kDnsTruncated),
            Read{EAI_FAIL});
  EXPECT_EQ(read({{"www.test", kDnsA, "192.0.2.1"}}, kDnsResponse | kDnsTruncated), kFound);
}

TEST(DnsMessage, PointersLeadBackwards) {
  EXPECT_EQ(read(with_record(pointer_to(kHeader) + address_record())), kFound);
  EXPECT_EQ(read(with_record("\x03www" + pointer_to(kHeader + 4) + address_record())), kFound);
  for (const size_t target : {size_t{0}, kHeader - 1, kRecordsAt, kRecordsAt + 1, kRecordsAt + 2,
                              kRecordsAt + 14, size_t{0x3fff}}) {
    EXPECT_EQ(read(with_record(pointer_to(target) + address_record())), Read{EAI_FAIL}) << target;
  }
  // Into the middle of itself.
  EXPECT_EQ(read(with_record("\x01x" + pointer_to(kRecordsAt) + address_record())), Read{EAI_FAIL});
  for (const char* reserved : {"\x40", "\x80", "\xbf"}) {
    EXPECT_EQ(read(with_record(reserved + std::string(80, 'a') + address_record())),
              Read{EAI_FAIL});
  }
}

TEST(DnsMessage, NamesHaveALimit) {
  std::string name;
  for (int i = 0; i < 3; i++) {
    name += '\x3f' + std::string(63, 'a');
  }
  const std::string longest = name + '\x3d' + std::string(61, 'a') + '\0';
  const std::string too_long = name + '\x3e' + std::string(62, 'a') + '\0';
  EXPECT_EQ(read(with_record(longest + address_record())), Read{EAI_NODATA});
  EXPECT_EQ(read(with_record(too_long + address_record())), Read{EAI_FAIL});
}

// Addresses of `owner`, as many as a message has room for behind `message`.
void fill_with_addresses(std::string& message, uint32_t count, const std::string& owner) {
  const std::string record = owner + address_record();
  for (; message.size() + record.size() <= 0xffff; count++) {
    message += record;
  }
  set16(message, kAnswersAt, count);
}

TEST(DnsMessage, OneThatIsFullOfAddressesIsRead) {
  const std::string name = "a.b.c.d.e.f.g.h.www.test";
  std::string message = dns_message(7, kDnsResponse, name, kDnsA, {});
  fill_with_addresses(message, 0, pointer_to(kHeader));
  const Read answer = read(message, AF_INET, name.c_str());
  EXPECT_EQ(answer.error, 0);
  EXPECT_EQ(answer.addresses.size(), DnsMessage::kMaxAddresses);
}

// The most labels, each behind a pointer, as often as a message has room for it.
TEST(DnsMessage, OneThatKeepsItsReaderBusyIsBroken) {
  // In the data of a record that is of no use: label, pointer to the label before.
  std::string maze;
  const size_t maze_at = kRecordsAt + 1 + 10;
  maze += std::string("\x01z\0", 3);
  size_t last = maze_at;
  for (int i = 0; i < 126; i++) {
    const size_t at = maze_at + maze.size();
    maze += "\x01z" + pointer_to(last);
    last = at;
  }
  std::string message = dns_message(7, kDnsResponse, "www.test", kDnsA, {{"", kDnsTxt, maze}});
  const std::string few = message + pointer_to(last) + address_record();
  fill_with_addresses(message, 1, pointer_to(last));
  const clock_t begin = std::clock();
  EXPECT_EQ(read(message), Read{EAI_FAIL});
  std::printf("%.1f ms\n", static_cast<double>(std::clock() - begin) * 1000 / CLOCKS_PER_SEC);
  EXPECT_EQ(read(few), Read{EAI_NODATA});
}

}  // namespace

#include "kernel/DnsMessage.h"

#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "support/DnsWire.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "util/Time.h"

namespace {

using namespace test_support;
using workflow::DnsAnswer;
using workflow::DnsMessage;

constexpr size_t kAnswerCountAt = 6;
constexpr size_t kBiggest = 65535;

// Reads a copy without a byte to spare, so that a sanitizer sees every read behind it.
DnsAnswer read_message(const std::string& message, int family = AF_INET,
                       const std::string& name = "www.test") {
  const std::vector<unsigned char> bytes(message.begin(), message.end());
  return DnsMessage(bytes.data(), bytes.size()).read(name, family);
}

std::string response(const std::vector<DnsRecord>& records, uint32_t flags = 0) {
  return dns_message(1, kDnsResponse | flags, "www.test", kDnsA, records);
}

TEST(DnsMessage, KnowsTheFamilyOfItsQuestion) {
  for (const auto& [type, family] :
       {std::pair{kDnsA, AF_INET}, {kDnsAaaa, AF_INET6}, {kDnsTxt, AF_UNSPEC}}) {
    const std::string message = dns_message(1, kDnsResponse, "www.test", type, {});
    const auto* const bytes = reinterpret_cast<const unsigned char*>(message.data());
    EXPECT_EQ(DnsMessage(bytes, message.size()).family(), family);
  }
}

TEST(DnsMessage, TheShortestTimeToLiveOfTheChainAndTheAddressesCounts) {
  EXPECT_EQ(read_message(response({{"x.test", kDnsCname, "y.test", 1},
                                   {"www.test", kDnsCname, "b.test", 70},
                                   {"b.test", kDnsA, "192.0.2.1", 80},
                                   {"x.test", kDnsA, "192.0.2.66", 2}}))
                .ttl_ns,
            70 * workflow::kNsPerSec);
  EXPECT_EQ(read_message(response({{"www.test", kDnsA, "192.0.2.1", 0x80000000U}})).ttl_ns, 0);
}

TEST(DnsMessage, RecordsOfOtherTypesAndClassesAreSkipped) {
  const DnsAnswer answer = read_message(response({{"www.test", kDnsTxt, "text"},
                                                  {"www.test", kDnsA, "192.0.2.66", 300, 3},
                                                  {"www.test", kDnsAaaa, "2001:db8::66"},
                                                  {"www.test", kDnsA, "192.0.2.1"}}));
  EXPECT_EQ(answer.error, 0);
  EXPECT_EQ(answer.addresses.size(), 1U);
  EXPECT_EQ(read_message(response({{"www.test", kDnsAaaa, "2001:db8::1"}})).error, EAI_NODATA);
}

TEST(DnsMessage, ADotInsideALabelIsNoBoundary) {
  std::string message = response({});
  set16(message, kAnswerCountAt, 1);
  message.append("\x08www.test", 9).push_back('\0');
  put16(message, kDnsA);
  put16(message, 1);
  put32(message, 300);
  put16(message, 4);
  message += "\x01\x02\x03\x04";
  EXPECT_EQ(read_message(message).error, EAI_FAIL);
}

TEST(DnsMessage, AChainMayBeAsLongAsTheRecordsThatAreRead) {
  std::vector<DnsRecord> records;
  std::string owner = "www.test";
  while (records.size() < DnsMessage::kMaxRecords - 1) {
    const std::string target = "n" + std::to_string(records.size()) + ".test";
    records.push_back({owner, kDnsCname, target});
    owner = target;
  }
  records.push_back({owner, kDnsA, "192.0.2.1"});
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(read_message(response(records)).error, 0);
  // With one more the last record is not read, and nobody can say what the name has.
  records.insert(records.begin(), {"x.test", kDnsTxt, "text"});
  EXPECT_EQ(read_message(response(records)).error, EAI_FAIL);
}

TEST(DnsMessage, OnlySoManyAddressesAreTaken) {
  const std::vector<DnsRecord> records(2 * DnsMessage::kMaxRecords,
                                       {"www.test", kDnsA, "192.0.2.1"});
  EXPECT_EQ(read_message(response(records)).addresses.size(), DnsMessage::kMaxAddresses);
}

TEST(DnsMessage, AMessageCutAnywhereIsBroken) {
  const std::string message = response({{"www.test", kDnsCname, "b.test"},
                                        {"b.test", kDnsTxt, "text"},
                                        {"b.test", kDnsA, "192.0.2.1"}});
  EXPECT_EQ(read_message(message).error, 0);
  for (size_t size = DnsMessage::kHeaderSize; size < message.size(); size++) {
    EXPECT_EQ(read_message(message.substr(0, size)).error, EAI_FAIL) << size;
  }
}

TEST(DnsMessage, WhateverTheBytesAVerdictHasItsAddresses) {
  test_support::TestRandom random(test_support::test_seed());
  const std::string message = response({{"www.test", kDnsCname, "b.test"},
                                        {"b.test", kDnsA, "192.0.2.1"},
                                        {"b.test", kDnsA, "192.0.2.2"}});
  size_t found = 0;
  for (int i = 0; i < 5000; i++) {
    std::string changed = message;
    for (uint64_t n = random.below(4) + 1; n-- > 0;) {
      changed[random.below(changed.size())] =
          static_cast<char>(random.one_in(3) ? 0xc0 : random.below(256));
    }
    changed.resize(std::max<size_t>(DnsMessage::kHeaderSize,
                                    changed.size() - (random.one_in(4) ? random.below(40) : 0)));
    for (const int family : {AF_INET, AF_INET6}) {
      const DnsAnswer answer = read_message(changed, family);
      EXPECT_EQ(answer.error == 0, !answer.addresses.empty());
      found += answer.addresses.size();
    }
  }
  EXPECT_GT(found, 0U);
}

// A message of 64 KiB of which every record has names that are as expensive as they can be: 127
// labels, each behind a pointer of its own.
std::string expensive_message(int type) {
  std::string message = response({});
  size_t previous = 0;
  // The labels are the data of one record that does not count.
  std::string labels;
  const size_t labels_at = message.size() + 1 + 10;
  for (int i = 0; i < 120; i++) {
    const size_t at = labels_at + labels.size();
    labels += "\x01x";
    previous == 0 ? labels.push_back('\0')
                  : put16(labels, 0xc000U | static_cast<uint32_t>(previous));
    previous = at;
  }
  uint32_t count = 1;
  const auto add = [&message](const std::string& owner, int of_type, const std::string& data) {
    message += owner;
    put16(message, static_cast<uint32_t>(of_type));
    put16(message, 1);
    put32(message, 300);
    put16(message, static_cast<uint32_t>(data.size()));
    message += data;
  };
  add(std::string(1, '\0'), kDnsTxt, labels);
  std::string last;
  put16(last, 0xc000U | static_cast<uint32_t>(previous));
  while (message.size() + 40 < kBiggest) {
    const std::string number = std::to_string(10000 + count);
    const std::string own = "\x05" + number + last;
    const std::string next = "\x05" + std::to_string(10001 + count) + last;
    add(own, type, type == kDnsCname ? next : std::string(4, '\1'));
    count++;
  }
  set16(message, kAnswerCountAt, count);
  return message;
}

int64_t used_cpu_ns() {
  struct timespec used = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * workflow::kNsPerSec + used.tv_nsec;
}

// Far more than the millisecond that it takes, so that a busy machine does not matter. It is 20 ms
// if all is compared with all.
// Every name in it leads through thousands of pointers, with no label between them.
std::string message_of_pointers() {
  std::string message = response({});
  const auto add = [&message](uint32_t owner, uint32_t type, const std::string& data) {
    owner == 0 ? message.push_back('\0') : put16(message, owner);
    put16(message, type);
    put16(message, 1);
    put32(message, 300);
    put16(message, static_cast<uint32_t>(data.size()));
    message += data;
  };
  std::string pointers;
  uint32_t last = 0xc000U | 12;
  const size_t begin = message.size() + 11;
  while (begin + pointers.size() + 2 < 0x3fff) {
    const size_t at = begin + pointers.size();
    put16(pointers, last);
    last = 0xc000U | static_cast<uint32_t>(at);
  }
  add(0, kDnsTxt, pointers);
  std::string target;
  put16(target, last);
  for (int i = 1; i < 256; i++) {
    add(last, kDnsCname, target);
  }
  set16(message, 6, 256);
  return message;
}

TEST(DnsMessageTime, ABigMessageHoldsNobodyUp) {
  for (const int type : {kDnsCname, kDnsA, 0}) {
    const std::string message = type == 0 ? message_of_pointers() : expensive_message(type);
    int64_t best_ns = workflow::kNever;
    for (int i = 0; i < 5; i++) {
      const int64_t begin_ns = used_cpu_ns();
      EXPECT_EQ(read_message(message).error, EAI_FAIL);
      best_ns = std::min(best_ns, used_cpu_ns() - begin_ns);
    }
    std::cout << "type " << type << ": " << best_ns << " ns\n";
    EXPECT_LT(best_ns, test_support::kSanitized ? 50'000'000 : 5'000'000) << type;
  }
}

}  // namespace

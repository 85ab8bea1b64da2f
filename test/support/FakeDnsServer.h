#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/DnsWire.h"
#include "support/TestSeed.h"
#include "util/UniqueFd.h"

namespace test_support {

// What a FakeDnsServer does when it is asked for a name.
struct DnsReply {
  enum class How {
    kAnswer,
    kDrop,           // says nothing
    kDropV6,         // says nothing about IPv6
    kGarbage,        // bytes that are no message, then nothing
    kWrongId,        // the answer to a question that was not asked, then nothing
    kWrongQuestion,  // the right identifier, another name
    kCutMessage,     // the first half of the answer
    kCorrupted,      // some bytes of the answer are others
    kCloseStream     // by UDP the answer is cut off, by TCP the connection ends
  };

  std::vector<std::string> v4 = {};
  std::vector<std::string> v6 = {};
  uint32_t ttl_s = 300;
  int rcode = 0;
  How how = How::kAnswer;
  std::string alias = {};  // the name is another one for this
  uint32_t alias_ttl_s = 300;
  bool only_tcp = false;                // by UDP the answer is cut off
  std::vector<DnsRecord> records = {};  // stand before all others in the answer
  // Changes the message before it is sent. Called by the server's thread.
  std::function<void(std::string& message)> edit = {};
  bool then_unedited = false;    // the message as it was before `edit` follows at once
  bool in_single_bytes = false;  // by TCP, each in a segment of its own
};

// A name server on a port of 127.0.0.1, by UDP and TCP, with a thread of its own. A name that was
// not set does not exist. Thread-safe.
class FakeDnsServer {
 public:
  FakeDnsServer();
  ~FakeDnsServer();
  FakeDnsServer(const FakeDnsServer&) = delete;
  FakeDnsServer& operator=(const FakeDnsServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  void set(const std::string& name, DnsReply reply);
  // Sets the reply to questions of this type only. It takes precedence over the call above.
  void set(const std::string& name, int type, DnsReply reply);
  // Sets the reply for names without a reply of their own.
  void set_others(DnsReply reply);

  // While held, questions by UDP are kept, and answered when they are released.
  void hold();
  void release();

  // Returns the number of questions for the name so far: of one type (kDnsA, kDnsAaaa) or, if
  // `type` is 0, of both.
  size_t asked(const std::string& name, int type = 0) const;
  size_t asked_in_all() const;
  size_t asked_by_tcp() const;
  // Returns the ports from which questions by UDP came.
  std::vector<uint16_t> ports() const;
  // Waits until that many questions by UDP for the name have come, and their answers, if there are
  // any, have been sent. Returns false if that takes too long.
  bool wait_for_questions(const std::string& name, size_t n) const;

 private:
  struct Question {
    std::string bytes;
    std::string from;  // a socket address
  };

  void run();
  void on_datagram();
  void answer(const Question& question);
  // Returns false when the connection has ended.
  bool on_stream(int fd);
  // Returns the messages to send.
  std::vector<std::string> replies_to(const std::string& query, bool by_tcp);
  bool is_sent_in_bytes(const std::string& query) const;
  DnsReply reply_for(const std::string& name, int type) const;  // under mutex_
  void corrupt(std::string& message, size_t question_end);

  workflow::UniqueFd udp_;
  workflow::UniqueFd tcp_;
  workflow::UniqueFd wake_;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, DnsReply> replies_;  // by name and type; 0 is any
  DnsReply others_{.rcode = 3};
  std::map<std::pair<std::string, int>, size_t> asked_;
  std::map<std::string, size_t> handled_;  // by UDP
  size_t by_tcp_ = 0;
  std::vector<uint16_t> ports_;
  bool held_ = false;
  bool stopping_ = false;
  TestRandom random_{test_seed()};
  std::vector<Question> kept_;
  std::thread thread_;
};

}  // namespace test_support

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/ManualClock.h"
#include "kernel/Resolver.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/FakeDnsServer.h"
#include "support/Tally.h"
#include "support/TempDir.h"

namespace test_support {

inline std::string text_of(const workflow::HostAddress& address) {
  char text[INET6_ADDRSTRLEN + 32] = {};
  ::getnameinfo(reinterpret_cast<const struct sockaddr*>(&address.address), address.length, text,
                sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

inline std::vector<std::string> texts_of(const std::vector<workflow::HostAddress>& addresses) {
  std::vector<std::string> texts;
  for (const workflow::HostAddress& address : addresses) {
    texts.push_back(text_of(address));
  }
  return texts;
}

// A requester that asks once and keeps the answer.
class Asker final : public workflow::ResolveRequest {
 public:
  void resolved(int error, workflow::HostAddresses addresses) override {
    system_error_ = errno;
    error_ = error;
    addresses_ = std::move(addresses);
    told_.add();
  }

  bool wait() const { return told_.wait_for(1); }
  bool wait_for(std::chrono::nanoseconds patience) const { return told_.wait_for(1, patience); }
  size_t times_told() const { return told_.count(); }
  int error() const { return error_; }
  int system_error() const { return system_error_; }
  const workflow::HostAddresses& addresses() const { return addresses_; }
  std::vector<std::string> texts() const {
    return addresses_ ? texts_of(*addresses_) : std::vector<std::string>();
  }

 private:
  Tally told_;
  int error_ = -1;
  int system_error_ = 0;
  workflow::HostAddresses addresses_;
};

// What a look-up has brought.
struct Found {
  int error = -1;
  std::vector<std::string> addresses = {};

  bool operator==(const Found&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Found& found) {
  out << "error " << found.error;
  for (const std::string& address : found.addresses) {
    out << ' ' << address;
  }
  return out;
}

inline void write_file(const std::string& path, const std::string& text) {
  // Another inode: the change shows even within one tick of the file system's clock.
  const std::string other = path + ".new";
  std::ofstream(other) << text;
  ASSERT_EQ(std::rename(other.c_str(), path.c_str()), 0);
}

// A resolver in a runtime with a clock of its own, which asks a server of its own. The server has
// half a minute for an answer, and then a whole one. c-ares measures these times by another clock,
// which no test can move, and looks at it only when the resolver's clock moves, or when something
// arrives. So only a test that moves the resolver's clock meets the limit.
class ResolverTest : public testing::Test {
 protected:
  static constexpr int64_t kTimeoutNs = 30 * workflow::kNsPerSec;

  ResolverTest() {
    options_.files = {.hosts_path = files_.path("hosts"),
                      .resolv_conf_path = files_.path("resolv.conf"),
                      .servers = {server_.address()},
                      .timeout_ms = kTimeoutNs / workflow::kNsPerMs,
                      .attempts = 2};
  }
  ~ResolverTest() override { stop(); }

  void start() {
    runtime_ = std::make_unique<workflow::Runtime>(workflow::Runtime::Options{
        .poller_threads = 2, .handler_threads = 2, .compute_threads = 1, .clock = &clock_});
    ASSERT_TRUE(runtime_->start());
    workflow::Resolver::configure(options_);
    workflow::ThreadContext::current().runtime = runtime_.get();
  }
  workflow::Resolver& resolver() {
    if (!runtime_) {
      start();
    }
    return workflow::Runtime::current().part<workflow::Resolver>();
  }
  void stop() {
    if (runtime_) {
      runtime_->stop();
      workflow::ThreadContext::current().runtime = nullptr;
      runtime_.reset();
    }
  }

  Found look_up(const std::string& host, int family = AF_INET) {
    Asker asker;
    resolver().resolve(host, family, &asker);
    EXPECT_TRUE(asker.wait());
    return {asker.error(), asker.texts()};
  }
  // For tests that wait until the limits have passed by every clock.
  void be_impatient(int limit_ms = 10) { options_.files.timeout_ms = limit_ms; }
  int64_t limit_ns() const { return options_.files.timeout_ms * workflow::kNsPerMs; }
  // Looks up a name that some server does not answer.
  Found look_up_patiently(const std::string& host, int family = AF_INET) {
    Asker asker;
    resolver().resolve(host, family, &asker);
    pass_until_told(asker);
    return {asker.error(), asker.texts()};
  }
  // Lets the limit of the first attempt pass, and not that of the second, however late a busy
  // server answers. The look-up looks when the manual clock says so, but c-ares measures time by
  // itself. So the limit has to be longer than a busy poller needs to send the second question.
  void pass_first_limit() {
    // A busy poller may still be sending the question. It answers this only after it has set its
    // timer for the limit.
    EXPECT_EQ(look_up("ready.onion"), Found{EAI_NONAME});
    std::this_thread::sleep_for(std::chrono::nanoseconds(2 * limit_ns()));
    pass(limit_ns() + 2 * workflow::kNsPerMs);  // the timer is up to a millisecond late
  }
  void pass_until_told(const Asker& asker) {
    while (!asker.wait_for(std::chrono::milliseconds(2))) {
      pass(limit_ns());
    }
  }
  void pass(int64_t duration_ns) { clock_.advance(*runtime_, duration_ns); }
  void pass_seconds(int64_t seconds) { pass(seconds * workflow::kNsPerSec); }

  TempDir files_;
  FakeDnsServer server_;
  workflow::ManualClock clock_;
  workflow::Resolver::Options options_;
  std::unique_ptr<workflow::Runtime> runtime_;
};

}  // namespace test_support

#include <gtest/gtest.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "client/ClientHub.h"
#include "client/ClientSettings.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "race/ClientRaceKit.h"
#include "support/Descriptors.h"
#include "support/RaceKit.h"
#include "support/TestServer.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFTaskFactory.h"

// Requests of clients while connections are made, kept, refused, cut and closed on both sides.

namespace race {
namespace {

using client_test::Peer;
using client_test::RawServer;
using server_test::TestServer;
using test_support::TestRandom;
using workflow::ClientHub;
using workflow::Runtime;

constexpr int kLong = 60'000;

// Threads that make requests of one server, and an account of each request:
//
// 1. Its callback ran exactly once.
// 2. SUCCESS means the whole right response; a failure is one that the server, or a time limit,
//    gave reason for. Where there was none it is SUCCESS.
// 3. What must not be sent twice was not, and nothing more often than allowed.
// 4. What was handed out of a streamed response is the beginning of the right one, all of it before
//    the callback, and none during or after it.
// 5. Where nobody closes there are no more connections than allowed.
class ClientRound final : public Round {
 public:
  struct Plan {
    bool own_server = false;
    bool tls = false;
    uint64_t conducts = kSteadyConducts;
    bool short_times = false;
    bool always_keeps = false;
    size_t max_connections = 1;
  };

  ClientRound(uint64_t number, Runtime* runtime, const Plan& plan, const Identity& identity)
      : Round(number, runtime),
        plan_(plan),
        identity_(identity),
        random_(test_support::test_seed(), number * 100) {
    open_server();
    set_params();
    for (Entry& entry : entries_) {
      draw(entry);
    }
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] {
        TestRandom random(test_support::test_seed(), this->number() * 100 + 10 + t);
        for (size_t i = t * kEach; i < (t + 1) * kEach; i++) {
          if (!entries_[i].chained) {
            request(i);
          }
          if (random.one_in(3)) {
            pause_us(random.below(2500));
          }
        }
      });
    }
  }

  std::string finish() override {
    join_threads();
    if (!ended_.wait_for(entries_.size())) {
      return "callbacks are missing: " + std::to_string(ended_.count());
    }
    for (size_t i = 0; i < entries_.size(); i++) {
      account_for(i);
    }
    require(!plan_.always_keeps || !raw_ || plan_.short_times || is_stopped_meanwhile() ||
                plan_.conducts != kSteadyConducts ||
                raw_->connections() <= static_cast<int>(plan_.max_connections),
            text_of_plan() + "more connections than allowed");
    return problem();
  }

  size_t outcomes(int state) const override {
    return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                             [state](const Entry& e) { return e.state == state; }));
  }
  size_t requests() const { return entries_.size(); }

 private:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 8;

  struct Entry {
    bool post = false;
    bool chained = false;  // started by the callback of the one before
    int retries = 0;
    int keep_alive = 0;
    size_t body = 0;
    int send = kLong;
    int receive = kLong;
    int watch = kLong;
    int total = kLong;
    std::atomic<int> seen{0};
    std::atomic<int> callbacks{0};
    int state = -2;
    int error = 0;
    int reason = 0;
    bool right = false;
    bool streamed = false;
    bool stops = false;  // when something has come
    std::string received;
    std::atomic<bool> extracting{false};
    bool alone = true;
  };

  uint64_t number_of(size_t i) const { return number() * 1000 + i; }
  int short_or_long() {
    return plan_.short_times && random_.one_in(2) ? 1 + static_cast<int>(random_.below(20)) : kLong;
  }

  void open_server() {
    if (plan_.own_server) {
      own_ = std::make_unique<TestServer>([this](WFHttpTask* task) { process(task); },
                                          server_test::http_params(),
                                          plan_.tls ? &identity_.certificate() : nullptr);
      port_ = own_->port();
    } else {
      raw_ = std::make_unique<RawServer>([this](Peer& peer, int) { script(peer); });
      port_ = raw_->port();
    }
  }

  void set_params() {
    struct EndpointParams params;
    params.max_connections = plan_.max_connections;
    params.connect_timeout = short_or_long();
    params.ssl_connect_timeout = short_or_long();
    params.response_timeout = short_or_long();
    if (plan_.conducts == kAllConducts) {  // some are silent
      params.response_timeout = 5 + static_cast<int>(random_.below(20));
    }
    workflow::set_default_endpoint_params(params);
  }

  void draw(Entry& entry) {
    const int keeps[] = {0, kLong, 1 + static_cast<int>(random_.below(3))};
    entry.keep_alive = plan_.always_keeps ? kLong : keeps[random_.below(3)];
    entry.chained = &entry != &entries_[0] && random_.one_in(3) &&
                    static_cast<size_t>(&entry - entries_.data()) % kEach != 0;
    entry.post = random_.one_in(4);
    entry.body = entry.post && random_.one_in(5) ? random_.below(3'000'000) : random_.below(500);
    entry.retries = static_cast<int>(random_.below(3));
    entry.send = short_or_long();
    entry.receive = short_or_long();
    entry.watch = short_or_long();
    entry.streamed = random_.one_in(3);
    entry.total = short_or_long();
    entry.stops = entry.streamed && !plan_.always_keeps && random_.one_in(6);
  }

  // The servers ------------------------------------------------------------------------------

  TestRandom random_for(uint64_t number, int attempt) const {
    return TestRandom(test_support::test_seed(), number * 16 + static_cast<uint64_t>(attempt));
  }
  int note(uint64_t number) {
    const uint64_t i = number - number_of(0);
    return i < entries_.size() ? ++entries_[i].seen : 0;
  }

  void process(WFHttpTask* task) {
    const uint64_t number = number_in(task->get_req()->get_request_uri());
    TestRandom random = random_for(number, note(number));
    task->get_resp()->append_output_body(body_of(number));
    if (random.one_in(3)) {
      series_of(task)->push_back(
          WFTaskFactory::create_timer_task(static_cast<unsigned>(random.below(8000)), nullptr));
    }
  }

  void script(Peer& peer) {
    Link link(peer, plan_.tls ? identity_.context() : nullptr);
    for (std::string target; !(target = link.request()).empty();) {
      const uint64_t number = number_in(target);
      TestRandom random = random_for(number, note(number));
      const auto conduct = static_cast<Conduct>(random.below(plan_.conducts));
      if (!serve(link, number, conduct, random)) return;
    }
  }

  // The clients ------------------------------------------------------------------------------

  void request(size_t i) {
    const Entry& entry = entries_[i];
    const std::string url = (plan_.tls ? "https" : "http") + std::string("://127.0.0.1:") +
                            std::to_string(port_) + "/n" + std::to_string(number_of(i));
    WFHttpTask* task = entry.streamed ? create_streamed(i, url)
                                      : WFTaskFactory::create_http_task(
                                            url, 0, entry.retries,
                                            [this, i](WFHttpTask* done) { called(i, done); });
    if (entry.post) {
      task->get_req()->set_method("POST");
      task->get_req()->append_output_body(std::string(entry.body, 'b'));
    }
    task->set_keep_alive(entry.keep_alive);
    task->set_send_timeout(entry.send);
    // Else that of the endpoint.
    if (entry.receive != kLong) {
      task->set_receive_timeout(entry.receive);
    }
    if (entry.watch != kLong) {
      task->set_watch_timeout(entry.watch);
    }
    task->start();
  }

  WFHttpTask* create_streamed(size_t i, const std::string& url) {
    WFHttpChunkedTask* task = WFHttpChunkedClient::create_chunked_task(
        url, 0, [this, i](WFHttpChunkedTask* each) { extract(i, each); },
        [this, i](WFHttpChunkedTask* done) { called(i, done); });
    task->set_total_timeout(entries_[i].total);
    return task;
  }

  void extract(size_t i, WFHttpChunkedTask* task) {
    Entry& entry = entries_[i];
    entry.alone = entry.alone && !entry.extracting.exchange(true) && entry.callbacks == 0;
    const void* data = nullptr;
    size_t size = 0;
    task->get_chunk()->get_chunk_data(&data, &size);
    entry.received.append(static_cast<const char*>(data), size);
    TestRandom random(test_support::test_seed(), number_of(i) + entry.received.size());
    if (random.one_in(3)) {
      pause_us(random.below(2000));
    }
    if (entry.stops) {
      task->stop();
    }
    entry.extracting = false;
  }

  void called(size_t i, WFHttpTask* task) {
    Entry& entry = entries_[i];
    entry.callbacks++;
    entry.alone = entry.alone && !entry.extracting;
    entry.state = task->get_state();
    entry.error = task->get_error();
    entry.reason = task->get_timeout_reason();
    if (entry.state == WFT_STATE_SUCCESS) {
      const char* status = task->get_resp()->get_status_code();
      entry.right = status && std::string_view(status) == "200" &&
                    (entry.streamed ? entry.received
                                    : protocol::HttpUtil::decode_chunked_body(task->get_resp())) ==
                        body_of(number_of(i));
    }
    if (i + 1 < entries_.size() && entries_[i + 1].chained) {
      enter();
      request(i + 1);
    }
    ended_.add();
  }

  // The account ------------------------------------------------------------------------------

  bool has_reason(const Entry& entry) const {
    if (entry.state == WFT_STATE_ABORTED) return is_stopped_meanwhile() && entry.error == 0;
    if (entry.state != WFT_STATE_SYS_ERROR) return false;
    switch (entry.error) {
      case ETIMEDOUT:
        return entry.reason == TOR_TRANSMIT_TIMEOUT
                   ? plan_.short_times || plan_.conducts == kAllConducts
                   : plan_.short_times && entry.reason != TOR_NOT_TIMEOUT;
      case ECANCELED:
        return entry.stops && !entry.received.empty();
      case ECONNRESET:
      case EPIPE:
        return plan_.conducts == kAllConducts || (plan_.conducts == kHonestConducts && entry.post);
      case EBADMSG:
        return plan_.conducts == kAllConducts;
      default:
        return false;
    }
  }

  void account_for(size_t i) {
    const Entry& entry = entries_[i];
    const std::string what = text_of_plan() + "request " + std::to_string(i) +
                             (entry.post ? " POST " : " GET ") +
                             text_of(entry.state, entry.error, entry.reason) + ", sent " +
                             std::to_string(entry.seen) + " times: ";
    require(entry.callbacks == 1, what + "not one callback");
    if (entry.state == WFT_STATE_SUCCESS) {
      require(entry.right, what + "a wrong response");
      require(entry.seen > 0, what + "nobody has seen it");
    } else {
      require(has_reason(entry), what + "no reason");
    }
    require(entry.alone, what + "extract is not alone");
    require(body_of(number_of(i)).compare(0, entry.received.size(), entry.received) == 0,
            what + "a wrong piece");
    const int most = entry.post ? 1 : 1 + entry.retries + 1;
    require(entry.seen <= most, what + "too often");
  }

  std::string text_of_plan() const {
    return (own_ ? "own server" : "raw server") + std::string(plan_.tls ? ", TLS" : "") +
           ", conducts " + std::to_string(plan_.conducts) +
           (plan_.short_times ? ", short times" : "") + ", connections " +
           std::to_string(plan_.max_connections) + ": ";
  }

  const Plan plan_;
  const Identity& identity_;
  TestRandom random_;
  std::array<Entry, kThreads * kEach> entries_;
  test_support::Tally ended_;
  std::unique_ptr<TestServer> own_;
  std::unique_ptr<RawServer> raw_;
  uint16_t port_ = 0;
};

class ClientRace : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(
        SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), identity_.authority().c_str()), 1);
  }

  static ClientRound::Plan plan_of(uint64_t round) {
    TestRandom random(test_support::test_seed(), round * 100 + 1);
    ClientRound::Plan plan;
    const uint64_t conducts[] = {kSteadyConducts, kHonestConducts, kAllConducts};
    plan.own_server = random.one_in(3);
    plan.tls = random.one_in(2);
    plan.conducts = conducts[plan.own_server ? 0 : random.below(3)];
    plan.short_times = random.one_in(2);
    plan.always_keeps = random.one_in(2);
    plan.max_connections = 1 + random.below(4);
    return plan;
  }

  Identity identity_;
};

TEST_F(ClientRace, EachRequestEndsOnceAsItShould) {
  const uint64_t first = static_cast<uint64_t>(test_support::env_number("WORKFLOW_RACE_FIRST", 1));
  const uint64_t count = rounds(500) / 5;  // each is that long
  size_t base = 0;
  size_t succeeded = 0;
  size_t failed = 0;
  for (uint64_t round = first; round < first + count; round++) {
    {
      ClientRound race(round, nullptr, plan_of(round), identity_);
      ASSERT_EQ(race.finish(), "") << "round " << round;
      succeeded += race.outcomes(WFT_STATE_SUCCESS);
      failed += race.requests() - race.outcomes(WFT_STATE_SUCCESS);
    }
    EXPECT_TRUE(Runtime::current().part<ClientHub>().finish_work());  // or it never returns
    // The servers are gone, so no connection is kept. The first round has started the library.
    if (base == 0) {
      pause_us(100'000);  // all closes have been seen, most likely
      base = test_support::descriptor_count();
    }
    ASSERT_TRUE(server_test::eventually([&] { return test_support::descriptor_count() <= base; }))
        << "round " << round << ": " << test_support::descriptor_count() << " instead of " << base;
  }
  std::printf("%zu succeeded, %zu failed\n", succeeded, failed);
  EXPECT_GT(succeeded, failed / 4);
  EXPECT_GT(failed, count / 4);
}

// The runtime stops at any moment, and the threads go on: what they start then is aborted. The
// first requests, which make what clients share, come all at once.
TEST_F(ClientRace, StoppedMeanwhile) {
  const uint64_t count = rounds(600) / 4;
  const Totals totals = run_stopped_rounds(count, 10'000, [this](uint64_t round, Runtime* runtime) {
    ClientRound::Plan plan = plan_of(round);
    plan.own_server = false;  // that has the process's runtime
    plan.short_times = false;
    return std::make_unique<ClientRound>(round, runtime, plan, identity_);
  });
  EXPECT_GT(totals.aborted, count);
}

// Kept connections are used again at the very moment when their time is up.
TEST_F(ClientRace, ReusedAsTheIdleTimeEnds) {
  TestRandom random(test_support::test_seed());
  RawServer server([](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.reply("x");
    }
  });
  const uint64_t count = rounds(3000);
  for (uint64_t round = 0; round < count; round++) {
    test_support::Tally ended;
    int state = -2;
    int error = 0;
    WFHttpTask* task = WFTaskFactory::create_http_task(server.url(), 0, 0, [&](WFHttpTask* done) {
      state = done->get_state();
      error = done->get_error();
      ended.add();
    });
    task->set_keep_alive(1);
    task->start();
    ASSERT_TRUE(ended.wait_for(1));
    ASSERT_EQ(state, WFT_STATE_SUCCESS) << error << " in round " << round;
    pause_us(850 + random.below(300));
  }
  EXPECT_GT(server.connections(), 1);
}

// Where connect(2) itself fails nobody waits for a connection that nobody makes.
TEST_F(ClientRace, ConnectionsThatFailAtOnceKeepNobodyWaiting) {
  struct EndpointParams params;
  params.max_connections = 1;
  params.connect_timeout = -1;  // it also limits the wait for the only connection
  workflow::set_default_endpoint_params(params);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/nonexistent/socket");
  const uint64_t count = rounds(800) / 4;
  constexpr size_t kThreads = 4;
  constexpr size_t kEach = 20;
  for (uint64_t round = 0; round < count; round++) {
    test_support::Tally ended;
    std::atomic<size_t> told{0};
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; t++) {
      threads.emplace_back([&] {
        for (size_t i = 0; i < kEach; i++) {
          WFNetworkTaskFactory<protocol::HttpRequest, protocol::HttpResponse>::create_client_task(
              TT_TCP, reinterpret_cast<const struct sockaddr*>(&address), sizeof address, 1,
              [&](WFHttpTask* task) {
                told += task->get_state() == WFT_STATE_SYS_ERROR && task->get_error() == ENOENT;
                ended.add();
              })
              ->start();
        }
      });
    }
    threads.clear();  // joins them
    ASSERT_TRUE(ended.wait_for(kThreads * kEach));
    ASSERT_EQ(told, kThreads * kEach) << "round " << round;
  }
}

}  // namespace
}  // namespace race

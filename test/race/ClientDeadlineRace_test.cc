// Requests with deadlines of a few milliseconds, to servers of all manners, while the deadlines
// pass: in the look-up of the host, in the queue, as the connection is made, over TLS, between two
// pieces, as the response arrives. Then an account of every request.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "client/ClientHub.h"
#include "client/ClientSettings.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "race/ClientRaceKit.h"
#include "support/Descriptors.h"
#include "support/FakeDnsServer.h"
#include "support/RaceKit.h"
#include "support/Sanitizers.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFTaskFactory.h"

namespace race {
namespace {

using client_test::Peer;
using client_test::RawServer;
using std::chrono::microseconds;
using test_support::TestRandom;
using workflow::ClientHub;
using workflow::Runtime;

// Not in a round: served at once.
constexpr uint64_t kWitness = 999'999'999;
constexpr uint64_t kMaxDeadlineUs = test_support::kSanitized ? 20'000 : 6000;

struct Plan {
  bool tls = false;
  uint64_t conducts = kSteadyConducts;
  bool silent = false;  // no request is answered: what its deadline does not end never ends
  bool deaf = false;    // the same, and nobody shakes hands either
  size_t max_connections = 1;
};

// Threads that make requests of one server, each with a deadline, some with two requests in it.
//
// 1. Each callback ran once, those of a deadline after those inside it.
// 2. SUCCESS means the whole right response.
// 3. A request that ended for the deadline is in one that says that it has passed.
// 4. What was handed out of a streamed response is the beginning of the right one.
class ClientDeadlineRound final : public Round {
 public:
  ClientDeadlineRound(uint64_t number, Runtime* runtime, const Plan& plan, const Identity& identity)
      : Round(number, runtime),
        plan_(plan),
        identity_(identity),
        random_(test_support::test_seed(), number * 100),
        deaf_(plan.deaf),
        server_([this](Peer& peer, int) { script(peer); }) {
    struct EndpointParams params;
    params.max_connections = plan.max_connections;
    params.connect_timeout = -1;
    params.ssl_connect_timeout = -1;
    params.response_timeout = -1;
    workflow::set_default_endpoint_params(params);
    for (Entry& entry : entries_) {
      const uint64_t most_us[] = {kMaxDeadlineUs / 20, kMaxDeadlineUs, 4 * kMaxDeadlineUs};
      entry.limit_us = random_.below(most_us[random_.below(3)]);
      entry.retries = static_cast<int>(random_.below(3));
      entry.streamed = random_.one_in(3);
      entry.post = random_.one_in(4);
      entry.body = random_.one_in(3) ? random_.below(3'000'000) : random_.below(500);
      entry.by_name = !plan.tls && random_.one_in(2);
      entry.keep_alive = random_.one_in(2) ? 60'000 : 0;
    }
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] {
        TestRandom random(test_support::test_seed(), this->number() * 100 + 10 + t);
        for (size_t i = t * kEach; i < (t + 1) * kEach; i += 2) {
          start_with_deadline(i);
          if (random.one_in(3)) {
            pause_us(random.below(2500));
          }
        }
      });
    }
  }

  std::string finish() override {
    join_threads();
    const bool all_ended = ended_.wait_for(entries_.size() / 2);
    deaf_ = false;
    if (!all_ended) return "callbacks are missing: " + std::to_string(ended_.count());
    for (size_t i = 0; i < entries_.size(); i++) {
      account_for(i);
    }
    return problem();
  }

  // What is wrong with requests that come after all that, more than may have connections at once.
  std::string serve_more() {
    // What some servers have said unasked, on a connection that was kept, the first may take for
    // their responses; they leave no connection.
    const std::string first = ask_for_more();
    return first.empty() || plan_.conducts == kAllConducts ? ask_for_more() : first;
  }

  // Counts only the failed tasks that were too late.
  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS     ? in_time_
           : state == WFT_STATE_SYS_ERROR ? too_late_
                                          : aborted_;
  }

 private:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 8;

  struct Entry {
    uint64_t limit_us = 0;
    int retries = 0;
    int keep_alive = 0;
    size_t body = 0;
    bool streamed = false;
    bool post = false;
    bool by_name = false;
    std::atomic<int> callbacks{0};
    int state = -2;
    int error = 0;
    int reason = 0;
    bool right = false;
    std::string received;
    // These three are of the first of two requests.
    int callbacks_before_deadline = 0;
    int deadline_state = -2;
    int deadline_error = 0;
  };

  uint64_t number_of(size_t i) const { return number() * 1000 + i; }
  std::string url_of(uint64_t number, const std::string& host) const {
    return (plan_.tls ? "https://" : "http://") + host + ":" + std::to_string(server_.port()) +
           "/n" + std::to_string(number);
  }

  void script(Peer& peer) {
    // Longer than the test waits: what a deadline has not ended the server does not end either.
    constexpr struct timeval kForEver = {600, 0};
    ::setsockopt(peer.fd(), SOL_SOCKET, SO_RCVTIMEO, &kForEver, sizeof kForEver);
    if (deaf_) {
      while (!peer.request().empty()) {
      }
      return;
    }
    Link link(peer, plan_.tls ? identity_.context() : nullptr);
    for (std::string target; !(target = link.request()).empty();) {
      const uint64_t number = number_in(target);
      TestRandom random(test_support::test_seed(), number);
      auto conduct = static_cast<Conduct>(random.below(plan_.conducts));
      if (number == kWitness || plan_.silent) {
        conduct = number == kWitness ? Conduct::kAtOnce : Conduct::kSilent;
      }
      if (!serve(link, number, conduct, random)) return;
    }
  }

  std::string ask_for_more() {
    const size_t requests = 2 * plan_.max_connections;
    std::mutex mutex;
    std::string problem;
    test_support::Tally ended;
    for (size_t i = 0; i < requests; i++) {
      WFHttpTask* task = WFTaskFactory::create_http_task(
          url_of(kWitness, "127.0.0.1"), 0, 0, [&](WFHttpTask* done) {
            if (done->get_state() != WFT_STATE_SUCCESS) {
              const std::lock_guard<std::mutex> lock(mutex);
              problem = text_of(done->get_state(), done->get_error(), done->get_timeout_reason());
            }
            ended.add();
          });
      task->set_keep_alive(0);
      task->start();
    }
    return ended.wait_for(requests) ? problem : "no room for more requests";
  }

  WFHttpTask* new_request(size_t i) {
    Entry& entry = entries_[i];
    // A new name for each: the look-up goes to the server.
    const std::string host =
        entry.by_name ? "host" + std::to_string(number_of(i)) + ".test" : "127.0.0.1";
    const std::string url = url_of(number_of(i), host);
    WFHttpTask* task =
        entry.streamed
            ? WFHttpChunkedClient::create_chunked_task(
                  url, 0, [this, i](WFHttpChunkedTask* piece) { extract(i, piece); },
                  [this, i](WFHttpChunkedTask* done) { called(i, done); })
            : WFTaskFactory::create_http_task(url, 0, entry.retries,
                                              [this, i](WFHttpTask* done) { called(i, done); });
    if (entry.post) {
      task->get_req()->set_method("POST");
      task->get_req()->append_output_body(std::string(entry.body, 'b'));
    }
    task->set_keep_alive(entry.keep_alive);
    return task;
  }

  void start_with_deadline(size_t i) {
    WFDeadlineTask* task = with_deadline(
        new_request(i), microseconds(entries_[i].limit_us), [this, i](WFDeadlineTask* done) {
          entries_[i].callbacks_before_deadline = entries_[i].callbacks + entries_[i + 1].callbacks;
          entries_[i].deadline_state = done->get_state();
          entries_[i].deadline_error = done->get_error();
          ended_.add();
        });
    task->sub_series()->push_back(new_request(i + 1));
    task->start();
  }

  void extract(size_t i, WFHttpChunkedTask* task) {
    const void* data = nullptr;
    size_t size = 0;
    task->get_chunk()->get_chunk_data(&data, &size);
    entries_[i].received.append(static_cast<const char*>(data), size);
    TestRandom random(test_support::test_seed(), number_of(i) + entries_[i].received.size());
    if (random.one_in(3)) {
      pause_us(random.below(2000));
    }
  }

  void called(size_t i, WFHttpTask* task) {
    Entry& entry = entries_[i];
    entry.callbacks++;
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
  }

  void account_for(size_t i) {
    const Entry& entry = entries_[i];
    const Entry& first = entries_[i - i % 2];
    const bool passed =
        first.deadline_state == WFT_STATE_SYS_ERROR && first.deadline_error == ETIMEDOUT;
    const std::string what =
        (plan_.tls ? "TLS, " : "") + ("conducts " + std::to_string(plan_.conducts)) +
        ", connections " + std::to_string(plan_.max_connections) + ": request " +
        std::to_string(i) + " " + text_of(entry.state, entry.error, entry.reason) + ", deadline " +
        std::to_string(first.deadline_state) + ": ";
    require(entry.callbacks == 1, what + "not one callback");
    require(first.callbacks_before_deadline == 2, what + "a callback after the deadline's");
    require(passed || first.deadline_state == WFT_STATE_SUCCESS ||
                (first.deadline_state == WFT_STATE_ABORTED && is_stopped_meanwhile()),
            what + "a strange deadline");
    if (entry.state == WFT_STATE_SUCCESS) {
      in_time_++;
      require(entry.right, what + "a wrong response");
    } else if (entry.state == WFT_STATE_SYS_ERROR && entry.error == ETIMEDOUT) {
      too_late_++;
      require(passed, what + "the deadline has not passed");
      require(entry.reason == TOR_NOT_TIMEOUT, what + "another limit");
    } else if (entry.state == WFT_STATE_ABORTED) {
      aborted_++;
      require(is_stopped_meanwhile(), what + "nobody stops");
    } else {
      const bool cut = entry.error == ECONNRESET || entry.error == EPIPE || entry.error == EBADMSG;
      require(entry.state == WFT_STATE_SYS_ERROR && cut && plan_.conducts > kSteadyConducts,
              what + "no reason");
    }
    require(body_of(number_of(i)).compare(0, entry.received.size(), entry.received) == 0,
            what + "a wrong piece");
  }

  const Plan plan_;
  const Identity& identity_;
  TestRandom random_;
  std::array<Entry, kThreads * kEach> entries_;
  test_support::Tally ended_;
  std::atomic<bool> deaf_;
  size_t too_late_ = 0;
  size_t in_time_ = 0;
  size_t aborted_ = 0;
  RawServer server_;
};

class ClientDeadlineRace : public testing::Test {
 protected:
  void SetUp() override {
    names_.set_others({.v4 = {"127.0.0.1"}});
    const std::string conf = folder_.path("resolv.conf");
    FILE* file = std::fopen(conf.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(("nameserver " + names_.address() + "\n").c_str(), file);
    std::fclose(file);
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.resolv_conf_path = conf.c_str();
    settings.hosts_path = "/dev/null";
    WORKFLOW_library_init(&settings);
    ASSERT_EQ(
        SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), identity_.authority().c_str()), 1);
  }

  static Plan plan_of(uint64_t round) {
    TestRandom random(test_support::test_seed(), round * 100 + 1);
    const uint64_t conducts[] = {kSteadyConducts, kHonestConducts, kAllConducts};
    return {.tls = random.one_in(2),
            .conducts = conducts[random.below(3)],
            .silent = random.one_in(2),
            .deaf = random.one_in(2),
            .max_connections = 1 + random.below(4)};
  }

  test_support::FakeDnsServer names_;
  test_support::TempDir folder_;
  Identity identity_;
};

TEST_F(ClientDeadlineRace, EachRequestEndsOnceAndNoConnectionIsLost) {
  const uint64_t first = static_cast<uint64_t>(test_support::env_number("WORKFLOW_RACE_FIRST", 1));
  const uint64_t count = rounds(500) / 10;  // each is that long
  size_t base = 0;
  size_t too_late = 0;
  size_t in_time = 0;
  // Most rounds have servers that answer nothing, so the seed decides how many requests can be in
  // time. The race goes on until there were enough of them.
  const auto goes_on = [&](uint64_t rounds_done) {
    return rounds_done < count || (in_time <= count / 8 && rounds_done < 20 * count);
  };
  for (uint64_t round = first; goes_on(round - first); round++) {
    {
      ClientDeadlineRound race(round, nullptr, plan_of(round), identity_);
      ASSERT_EQ(race.finish(), "") << "round " << round;
      ASSERT_EQ(race.serve_more(), "") << "round " << round;
      too_late += race.outcomes(WFT_STATE_SYS_ERROR);
      in_time += race.outcomes(WFT_STATE_SUCCESS);
    }
    EXPECT_TRUE(Runtime::current().part<ClientHub>().finish_work());  // or it never returns
    // The servers are gone, so no connection is kept. The first round has started the library.
    if (base == 0) {
      pause_us(200'000);  // all closes have been seen, and questions to name servers, most likely
      base = test_support::descriptor_count();
    }
    // So many look-ups that nobody waits for any more have sockets.
    constexpr size_t kLookUps = 8;
    ASSERT_TRUE(server_test::eventually([&] {
      return test_support::descriptor_count() <= base + kLookUps;
    })) << "round "
        << round << ": " << test_support::descriptor_count() << " instead of " << base;
  }
  std::printf("%zu too late, %zu in time\n", too_late, in_time);
  EXPECT_GT(too_late, count);
  EXPECT_GT(in_time, count / 8);
}

// The runtime stops at any moment.
TEST_F(ClientDeadlineRace, StoppedMeanwhile) {
  const uint64_t count = rounds(600) / 4;
  const auto enough = [count](const Totals& totals) {
    return totals.aborted > count / 4 && totals.failed > count / 4;
  };
  const auto begin = [this](uint64_t round, Runtime* runtime) {
    return std::make_unique<ClientDeadlineRound>(round, runtime, plan_of(round), identity_);
  };
  EXPECT_TRUE(enough(run_stopped_rounds(count, 8000, begin, enough)));
}

}  // namespace
}  // namespace race

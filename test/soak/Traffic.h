#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "support/TestSeed.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFTaskFactory.h"

namespace soak {

using test_support::TestRandom;

// What was begun and what has ended. At the end of all traffic each pair is equal.
struct Ledger {
  std::atomic<int64_t> users{0}, users_ended{0};
  std::atomic<int64_t> requests{0}, requests_ended{0};  // of the library's clients
  std::atomic<int64_t> served{0}, served_ended{0};      // by the library's servers
  std::atomic<int64_t> timers{0}, timers_ended{0};
  std::atomic<int64_t> cancels{0}, cancels_seen{0};  // counted by cancel_by_name, and by callbacks
  std::atomic<int64_t> computations{0}, computations_ended{0};
  // For the record.
  std::atomic<int64_t> succeeded{0}, timed_out{0}, refused{0}, raw_connections{0}, resets{0};
  std::atomic<int64_t> wrong{0};  // replies that were not what was asked for

  bool balanced() const {
    return users == users_ended && requests == requests_ended && served == served_ended &&
           timers == timers_ended && cancels == cancels_seen && computations == computations_ended;
  }
  void print() const {
    std::printf(
        "requests %lld (succeeded %lld, timed out %lld, otherwise failed %lld), ended %lld\n"
        "served %lld, ended %lld; raw connections %lld, of these reset %lld\n"
        "timers %lld, ended %lld; cancels counted %lld, seen %lld\n"
        "computations %lld, ended %lld; wrong replies %lld\n",
        number(requests), number(succeeded), number(timed_out), number(refused),
        number(requests_ended), number(served), number(served_ended), number(raw_connections),
        number(resets), number(timers), number(timers_ended), number(cancels), number(cancels_seen),
        number(computations), number(computations_ended), number(wrong));
  }

 private:
  static long long number(const std::atomic<int64_t>& value) { return value; }
};

inline const std::string& large_body() {
  static const std::string text(200'000, 'L');
  return text;
}

inline std::string random_name(TestRandom& random) {
  return "soak" + std::to_string(random.below(20));
}

// A timer, named or not, that the ledger knows.
inline WFTimerTask* new_timer(Ledger& ledger, const std::string& name, long delay_ns) {
  ledger.timers++;
  const auto ended = [&ledger](WFTimerTask* timer) {
    ledger.cancels_seen += timer->get_error() == ECANCELED ? 1 : 0;
    ledger.timers_ended++;
  };
  return name.empty() ? WFTaskFactory::create_timer_task(0, delay_ns, ended)
                      : WFTaskFactory::create_timer_task(name, 0, delay_ns, ended);
}

// "/NAME?ms=N" replies after N ms, or when NAME is cancelled; "/large", "/noreply", "/close".
inline void serve(Ledger& ledger, WFHttpTask* task) {
  ledger.served++;
  task->set_callback([&ledger](WFHttpTask*) { ledger.served_ended++; });
  const std::string uri = task->get_req()->get_request_uri();
  const std::string path = uri.substr(1, uri.find('?') - 1);
  if (path == "large") {
    task->get_resp()->append_output_body_nocopy(large_body());
    return;
  }
  if (path == "noreply") {
    task->noreply();
    return;
  }
  if (path == "close") {
    task->set_keep_alive(0);
  } else if (const unsigned ms = server_test::delay_ms(task)) {
    series_of(task)->push_back(new_timer(ledger, path, static_cast<long>(ms) * 1'000'000));
  }
  task->get_resp()->append_output_body(uri);
}

inline std::string random_target(TestRandom& random) {
  const uint64_t kind = random.below(20);
  if (kind < 1) return "/large";
  if (kind < 2) return random.one_in(2) ? "/noreply" : "/close";
  if (kind < 10) return "/";
  return "/" + (random.one_in(2) ? random_name(random) : "") +
         "?ms=" + std::to_string(random.below(20));
}

// Sends one request after the other with the library's client, until it has to end. Deletes itself.
class User {
 public:
  User(Ledger& ledger, const std::atomic<bool>& enough, uint16_t plain, uint16_t tls,
       TestRandom random)
      : ledger_(ledger), enough_(enough), plain_(plain), tls_(tls), random_(random) {
    ledger_.users++;
  }

  void ask() {
    if (enough_) {
      Ledger& ledger = ledger_;
      delete this;
      ledger.users_ended++;
      return;
    }
    ledger_.requests++;
    const bool over_tls = random_.one_in(3);
    target_ = random_target(random_);
    WFHttpTask* task = WFTaskFactory::create_http_task(
        std::string(over_tls ? "https" : "http") +
            "://127.0.0.1:" + std::to_string(over_tls ? tls_ : plain_) + target_,
        0, 0, [this](WFHttpTask* ended) { end(ended); });
    // Short, so that connections come and go.
    task->set_keep_alive(random_.one_in(4) ? 0 : 300);
    if (random_.one_in(10)) {
      task->set_receive_timeout(static_cast<int>(1 + random_.below(10)));
    }
    task->start();
  }

 private:
  void end(WFHttpTask* task) {
    ledger_.requests_ended++;
    if (task->get_state() == WFT_STATE_SUCCESS) {
      const std::string body = protocol::HttpUtil::decode_chunked_body(task->get_resp());
      ledger_.wrong += body == (target_ == "/large" ? large_body() : target_) ? 0 : 1;
      ledger_.succeeded++;
    } else if (task->get_error() == ETIMEDOUT) {
      ledger_.timed_out++;
    } else {
      // Nothing else can go wrong, but for what has asked for it.
      ledger_.wrong += target_ == "/noreply" ? 0 : 1;
      ledger_.refused++;
    }
    if (random_.one_in(2)) {
      ask();
      return;
    }
    WFTimerTask* pause = WFTaskFactory::create_timer_task(
        0, static_cast<long>(random_.below(5'000'000)), [this](WFTimerTask*) { ask(); });
    pause->start();
  }

  Ledger& ledger_;
  const std::atomic<bool>& enough_;
  const uint16_t plain_;
  const uint16_t tls_;
  TestRandom random_;
  std::string target_;
};

// Connections that end in every way: in order, cut short, by RST; plain and over TLS.
inline void harass(Ledger& ledger, const std::atomic<bool>& enough, uint16_t plain, uint16_t tls,
                   TestRandom random) {
  while (!enough) {
    ledger.raw_connections++;
    std::string requests;
    for (uint64_t i = 1 + random.below(4); i > 0; i--) {
      requests += server_test::get(random_target(random));
    }
    const bool cut = random.one_in(4);
    if (cut) {
      requests.resize(random.below(requests.size()));
    }
    const bool over_tls = random.one_in(4);
    std::unique_ptr<server_test::TlsClient> secure;
    server_test::RawClient clear;
    if (over_tls) {
      secure = std::make_unique<server_test::TlsClient>(tls, server_test::TlsClient::Options());
      secure->send(requests);
    } else {
      clear = server_test::RawClient(plain, random.one_in(4) ? 4096 : 0);
      clear.send(requests);
    }
    server_test::RawClient& raw = over_tls ? secure->raw() : clear;
    if (!cut && random.one_in(2)) {
      raw.take(1 + random.below(100'000));
    }
    if (random.one_in(2)) {
      ledger.resets++;
      raw.reset();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));  // others' turn
  }
}

// Timers made and cancelled, computations.
inline void churn(Ledger& ledger, const std::atomic<bool>& enough, TestRandom random) {
  while (!enough) {
    for (int i = 0; i < 50; i++) {
      new_timer(ledger, random.one_in(3) ? "" : random_name(random),
                static_cast<long>(random.below(50'000'000)))
          ->start();
    }
    ledger.cancels += WFTaskFactory::cancel_by_name(random_name(random), 1 + random.below(40));
    ledger.computations++;
    WFGoTask* task = WFTaskFactory::create_go_task("soak", [] {});
    task->set_callback([&ledger](WFGoTask*) { ledger.computations_ended++; });
    task->start();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a rate that leaves others room
  }
}

}  // namespace soak

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/Eventually.h"
#include "support/RedisServer.h"
#include "support/TempDir.h"
#include "tutorial/DemoClient.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

using test_support::eventually;
using test_support::FastDir;
using tutorial_test::Demo;
using tutorial_test::HttpReply;
using tutorial_test::json;
using tutorial_test::Program;
using tutorial_test::RawClient;

namespace {

// As the demo writes times; such texts are in the order of the times.
std::string utc_text(std::chrono::system_clock::time_point time) {
  const time_t seconds = std::chrono::system_clock::to_time_t(time);
  struct tm utc = {};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc)};
}

class DemoStore : public testing::Test {
 protected:
  Demo start() const { return Demo({"--store=" + url_}); }

  static HttpReply remind(const Demo& demo, const std::string& query, const std::string& payload) {
    RawClient client(demo.port);
    return client
        .ask("POST /remind?" + query + " HTTP/1.1\r\nHost: demo\r\nContent-Length: " +
             std::to_string(payload.size()) + "\r\n\r\n" + payload)
        .value_or(HttpReply());
  }

  FastDir folder_;
  std::string url_ = "sqlite:" + folder_.path("demo.db");
};

// Wherever the demo keeps its reminders. What a receipt says depends on that.
class DemoStores : public DemoStore, public testing::WithParamInterface<const char*> {
 protected:
  DemoStores() {
    if (is_redis()) {
      server_ = std::make_unique<redis_test::RedisServer>(redis_test::RedisServer::Options{
          .arguments = {"--appendonly", "yes", "--appendfsync", "always"}});
      url_ = server_->url() + "&namespace=demo";
    }
  }
  static bool is_redis() { return GetParam() == std::string("redis"); }
  static const char* receipt() { return is_redis() ? "fsync" : "file"; }

  std::unique_ptr<redis_test::RedisServer> server_;
};
INSTANTIATE_TEST_SUITE_P(Stores, DemoStores, testing::Values("sqlite", "redis"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace

TEST_P(DemoStores, RemindersAreThereAfterAKill) {
  {
    Demo demo = start();
    const HttpReply reply = remind(demo, "name=tea&ms=3600000", "green\xff tea");
    EXPECT_EQ(reply.status, 201);
    const json stored = Demo::parsed(reply);
    EXPECT_EQ(stored["name"], "tea");
    EXPECT_GT(stored["timer"], 0);
    EXPECT_EQ(stored["receipt"], receipt());
    EXPECT_EQ(remind(demo, "name=bread&ms=7200000", "").status, 201);
    RawClient delayed = demo.begin_delay("ms=3600000&name=tea");
    ASSERT_TRUE(demo.comes_to("tea", 1));
    demo.program.signal(SIGKILL);
    EXPECT_EQ(demo.program.exit_code(), -SIGKILL);
  }
  Demo demo = start();
  const json timers = demo.get("/timers?list=10");
  EXPECT_EQ(timers["names"], json::object());
  EXPECT_EQ(timers["stored"]["count"], 2);
  const json& list = timers["stored"]["list"];
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["name"], "bread");
  EXPECT_EQ(list[1]["name"], "tea");
  EXPECT_EQ(list[1]["payload"], "green\xef\xbf\xbd tea");
  EXPECT_EQ(list[1]["stage"], "waiting");
  EXPECT_EQ(list[1]["attempts"], 0);
  EXPECT_LE(list[1]["remaining_ms"], 3'600'000);
  EXPECT_GT(list[1]["remaining_ms"], 3'000'000);
  EXPECT_EQ(demo.get("/timers?list=1")["stored"]["list"].size(), 1U);
  EXPECT_EQ(demo.get("/timers")["stored"], json({{"count", 2}}));
}

TEST_P(DemoStores, CancelAnswersWithVerdicts) {
  Demo demo = start();
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(remind(demo, "name=tea&ms=3600000", "").status, 201);
  }
  RawClient delayed = demo.begin_delay("ms=3600000&name=tea");
  ASSERT_TRUE(demo.comes_to("tea", 1));
  json cancelled = demo.post("/cancel?name=tea&max=1");
  EXPECT_EQ(cancelled["cancelled"], 1);
  ASSERT_EQ(cancelled["stored"].size(), 1U);
  EXPECT_EQ(cancelled["stored"][0]["verdict"], "won");
  EXPECT_EQ(Demo::reply_of(delayed)["state"], "cancelled");

  cancelled = demo.post("/cancel?name=tea");
  EXPECT_EQ(cancelled["cancelled"], 0);
  EXPECT_EQ(cancelled["stored"].size(), 2U);
  cancelled = demo.post("/cancel?name=tea");
  ASSERT_EQ(cancelled["stored"].size(), 1U);
  EXPECT_EQ(cancelled["stored"][0]["verdict"], "done");
  EXPECT_EQ(cancelled["stored"][0]["outcome"], "cancelled");
  const auto now = std::chrono::system_clock::now();
  EXPECT_GT(cancelled["stored"][0].value("ended", ""), utc_text(now - std::chrono::hours(1)));
  EXPECT_LE(cancelled["stored"][0].value("ended", ""), utc_text(now + std::chrono::seconds(1)));
  json unknown = demo.post("/cancel?name=nobody")["stored"];
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0]["verdict"], "unknown");
  EXPECT_GT(unknown[0].value("remembers_since", ""), utc_text(now - std::chrono::hours(1)));
  EXPECT_LE(unknown[0].value("remembers_since", ""), cancelled["stored"][0].value("ended", ""));
  EXPECT_EQ(demo.get("/timers")["stored"]["count"], 0);
}

// Another program that shares the store runs the reminder.
TEST_P(DemoStores, CancelSaysWhoRunsTheReminder) {
  Demo demo = start();
  WFStoreOptions options;
  options.owner = "the worker";
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url_, options));
  ASSERT_TRUE(store);
  WFFacilities::WaitGroup began(1);
  WFCounterTask* const end = WFTaskFactory::create_counter_task(1, nullptr);
  uint64_t fence = 0;
  store->handle("other", [&](WFStoredTimer* timer) {
    fence = timer->fence();
    series_of(timer)->push_back(end);
    began.done();
  });
  ASSERT_TRUE(store->schedule({"tea", std::chrono::seconds(0), "other"}).ok());
  began.wait();
  json stored = demo.post("/cancel?name=tea")["stored"];
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(stored[0]["verdict"], "running");
  EXPECT_EQ(stored[0]["owner"], "the worker");
  EXPECT_EQ(stored[0]["fence"], fence);
  EXPECT_EQ(stored[0]["attempts"], 1);
  EXPECT_GT(stored[0].value("lease_left_ms", 0), 0);
  EXPECT_LE(stored[0].value("lease_left_ms", 0), 30'000);
  end->count();
  EXPECT_TRUE(store->close(test_support::kPatience));
}

// What the demo has in its own memory does not depend on the store.
TEST_F(DemoStore, CancelEndsDelaysWhenTheStoreDoesNotAnswer) {
  redis_test::RedisServer server;
  url_ = server.url() + "&namespace=demo";
  Demo demo = start();
  EXPECT_EQ(remind(demo, "name=tea&ms=3600000", "").status, 201);
  RawClient delayed = demo.begin_delay("ms=3600000&name=tea");
  ASSERT_TRUE(demo.comes_to("tea", 1));
  server.signal(SIGSTOP);
  RawClient canceller(demo.port);
  canceller.send(tutorial_test::request_for("POST", "/cancel?name=tea"));
  EXPECT_EQ(Demo::reply_of(delayed)["state"], "cancelled");
  server.signal(SIGCONT);
  json answer = Demo::reply_of(canceller);
  EXPECT_EQ(answer["cancelled"], 1);
  ASSERT_EQ(answer["stored"].size(), 1U);
  EXPECT_EQ(answer["stored"][0]["verdict"], "won");

  delayed = demo.begin_delay("ms=3600000&name=tea");
  ASSERT_TRUE(demo.comes_to("tea", 1));
  server.stop();
  const HttpReply reply = demo.ask("POST", "/cancel?name=tea");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(Demo::parsed(reply)["name"], "tea");
  EXPECT_EQ(Demo::parsed(reply)["cancelled"], 1);
  EXPECT_NE(Demo::parsed(reply).value("error", ""), "");
  EXPECT_FALSE(Demo::parsed(reply).contains("stored"));
  EXPECT_EQ(Demo::reply_of(delayed)["state"], "cancelled");
}

TEST_F(DemoStore, RemindsInTimeAndCountsIt) {
  Demo demo = start();
  EXPECT_EQ(remind(demo, "name=now&ms=0", "it is time").status, 201);
  EXPECT_TRUE(demo.program.prints(R"({"reminder":"now","payload":"it is time","late_ms":)"));
  EXPECT_TRUE(eventually(
      [&] { return demo.post("/cancel?name=now")["stored"][0].value("outcome", "") == "done"; }));
  const std::string metrics = demo.ask("GET", "/metrics").body;
  for (const char* line :
       {"\nworkflow_timers_created_total ", "\nworkflow_store_scheduled_total{store=\"demo\"} 1\n",
        "\nworkflow_store_begun_total{store=\"demo\"} 1\n",
        "\nworkflow_store_ended_total{store=\"demo\",how=\"acknowledged\"} 1\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  }
  demo.program.signal(SIGTERM);
  EXPECT_EQ(demo.program.exit_code(), 0);
}

TEST_F(DemoStore, BadRequestsHaveAClearAnswer) {
  Demo demo = start();
  const std::string long_name(1025, 'n');
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "'ms' is missing"},
      {"ms=1", "'name' is missing"},
      {"ms=1&name=", "'name' is empty"},
      {"ms=-1&name=x", "not '-1'"},
      {"ms=31622400001&name=x", "not '31622400001'"},
      {"ms=1&name=x&max=1", "unknown parameter 'max'"},
      {"ms=1&name=%ff", "'name' is not UTF-8"}};
  for (const auto& [query, message] : bad) {
    const HttpReply reply = remind(demo, query, "");
    EXPECT_EQ(reply.status, 400) << query;
    const std::string error = Demo::parsed(reply).value("error", "");
    EXPECT_NE(error.find(message), std::string::npos) << query << ": " << error;
  }
  EXPECT_EQ(remind(demo, "ms=1&name=" + long_name, "").status, 413);
  const HttpReply too_large = remind(demo, "ms=1&name=x", std::string(65537, 'p'));
  EXPECT_EQ(too_large.status, 413);
  EXPECT_EQ(Demo::parsed(too_large)["error"],
            "the payload has 65537 bytes; at most 65536 are allowed");
  EXPECT_EQ(demo.ask("GET", "/remind?ms=1&name=x").status, 405);
  EXPECT_EQ(demo.ask("GET", "/remind?ms=1&name=x").field("Allow"), "POST");
  EXPECT_EQ(demo.get("/timers")["stored"]["count"], 0);
  // No stored timer has such a name; a delayed reply may have it.
  EXPECT_EQ(demo.post("/cancel?name=" + long_name)["cancelled"], 0);
}

TEST_F(DemoStore, NoStoreNoReminders) {
  Demo demo;
  const HttpReply reply = remind(demo, "ms=1&name=x", "");
  EXPECT_EQ(reply.status, 404);
  EXPECT_NE(Demo::parsed(reply).value("error", "").find("--store"), std::string::npos);
}

TEST_F(DemoStore, AStoreThatCannotBeOpenedEndsTheDemo) {
  const std::string text = folder_.path("text");
  std::ofstream(text) << "a file, but no store: " << std::string(200, '.');
  for (const std::string& url : {std::string("nonsense"), std::string("sqlite:"), "sqlite:" + text,
                                 "sqlite:" + folder_.path("missing/demo.db")}) {
    Program program("tutorial-demo", {"0", "--store", url});
    EXPECT_EQ(program.exit_code(), 1) << url;
    EXPECT_EQ(program.output(), "") << url;
  }
  Program program("tutorial-demo", {"0", "--store="});
  EXPECT_EQ(program.exit_code(), 2);
}

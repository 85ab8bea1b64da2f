#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tutorial/DemoClient.h"

using tutorial_test::Demo;
using tutorial_test::HttpReply;
using tutorial_test::json;
using tutorial_test::RawClient;

namespace {

int64_t elapsed_ms(std::chrono::steady_clock::time_point since) {
  const auto elapsed = std::chrono::steady_clock::now() - since;
  return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
}

}  // namespace

TEST(Demo, PrintsItsAddressAndLinesToTry) {
  Demo demo;
  ASSERT_NE(demo.port, 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(demo.port);
  EXPECT_TRUE(demo.program.prints("listening on " + url));
  EXPECT_TRUE(demo.program.prints("curl '" + url + "/delay?ms=2000'"));
  EXPECT_TRUE(demo.program.prints("curl -X POST '" + url + "/cancel?name=tea'"));
}

TEST(Demo, RootAnswersAtOnce) {
  Demo demo;
  const HttpReply reply = demo.ask("GET", "/");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_NE(reply.body.find("curl 'http://demo/delay"), std::string::npos) << reply.body;
}

TEST(Demo, DelayRepliesAfterItsTime) {
  Demo demo;
  const auto began = std::chrono::steady_clock::now();
  const HttpReply reply = demo.ask("GET", "/delay?ms=150");
  EXPECT_GE(elapsed_ms(began), 150);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("Content-Type"), "application/json");
  EXPECT_EQ(reply.field("Cache-Control"), "no-store");
  const json body = Demo::parsed(reply);
  EXPECT_TRUE(body["name"].is_null());
  EXPECT_EQ(body["state"], "expired");
  EXPECT_GE(body["waited_ms"], 150);
  EXPECT_LT(body["waited_ms"], 10'000);
}

TEST(Demo, DelayOfNothingExpires) {
  Demo demo;
  EXPECT_EQ(demo.get("/delay?ms=0&name=now")["state"], "expired");
}

TEST(Demo, CancelByNameHasTheReplyLeaveAtOnce) {
  Demo demo;
  RawClient tea = demo.begin_delay("ms=3600000&name=tea");
  RawClient other = demo.begin_delay("ms=3600000&name=coffee");
  ASSERT_TRUE(demo.comes_to("tea", 1) && demo.comes_to("coffee", 1));

  const json cancelled = demo.post("/cancel?name=tea");
  EXPECT_EQ(cancelled, json({{"name", "tea"}, {"cancelled", 1}}));
  const json body = Demo::reply_of(tea);
  EXPECT_EQ(body["name"], "tea");
  EXPECT_EQ(body["state"], "cancelled");
  EXPECT_LT(body["waited_ms"], 60'000);
  EXPECT_TRUE(other.silent_for(std::chrono::milliseconds(50)));
}

TEST(Demo, CancelTakesTheOldestUpToMax) {
  Demo demo;
  std::vector<RawClient> clients;
  for (size_t i = 0; i < 4; i++) {
    clients.push_back(demo.begin_delay("ms=3600000&name=tea"));
    ASSERT_TRUE(demo.comes_to("tea", i + 1));
  }
  EXPECT_EQ(demo.post("/cancel?name=tea&max=0")["cancelled"], 0);
  EXPECT_EQ(demo.post("/cancel?name=tea&max=2")["cancelled"], 2);
  EXPECT_EQ(Demo::reply_of(clients[0])["state"], "cancelled");
  EXPECT_EQ(Demo::reply_of(clients[1])["state"], "cancelled");
  EXPECT_TRUE(clients[2].silent_for(std::chrono::milliseconds(50)));
  EXPECT_EQ(demo.post("/cancel?name=tea&max=100")["cancelled"], 2);
  EXPECT_EQ(Demo::reply_of(clients[2])["state"], "cancelled");
  EXPECT_EQ(Demo::reply_of(clients[3])["state"], "cancelled");
  EXPECT_EQ(demo.post("/cancel?name=tea")["cancelled"], 0);
}

TEST(Demo, CancelOfAnUnknownNameIsZero) {
  Demo demo;
  EXPECT_EQ(demo.post("/cancel?name=nobody")["cancelled"], 0);
}

TEST(Demo, TimersListsWhatIsOutstanding) {
  Demo demo;
  EXPECT_EQ(demo.get("/timers"), json({{"names", json::object()}, {"unnamed", 0}}));
  std::vector<RawClient> clients;
  for (const char* query :
       {"ms=3600000&name=a", "ms=3600000&name=b", "ms=3600000&name=b", "ms=3600000"}) {
    clients.push_back(demo.begin_delay(query));
  }
  ASSERT_TRUE(demo.comes_to("a", 1) && demo.comes_to("b", 2) && demo.comes_to("", 1));
  EXPECT_EQ(demo.get("/timers"), json({{"names", {{"a", 1}, {"b", 2}}}, {"unnamed", 1}}));
  // No waiting: what was cancelled is no longer counted when the cancelling request is answered.
  EXPECT_EQ(demo.post("/cancel?name=b")["cancelled"], 2);
  EXPECT_EQ(demo.get("/timers"), json({{"names", {{"a", 1}}}, {"unnamed", 1}}));
}

TEST(Demo, TimersListsThoseWithANameIfAsked) {
  Demo demo;
  std::vector<RawClient> clients;
  for (const char* query : {"ms=3600000&name=a", "ms=3600000&name=b", "ms=3600000"}) {
    clients.push_back(demo.begin_delay(query));
  }
  ASSERT_TRUE(demo.comes_to("a", 1) && demo.comes_to("b", 1) && demo.comes_to("", 1));
  EXPECT_EQ(demo.get("/timers?list=0")["list"], json::array());
  EXPECT_EQ(demo.get("/timers?list=1")["list"].size(), 1u);
  std::vector<std::string> names;
  const json listed = demo.get("/timers?list=10");
  for (const json& timer : listed["list"]) {
    names.push_back(timer["name"]);
    EXPECT_LE(timer["remaining_ms"], 3600000);
    EXPECT_GT(timer["remaining_ms"], 3000000);
    EXPECT_GE(timer["age_ms"], 0);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(demo.ask("GET", "/timers?list=1001").status, 400);
  EXPECT_EQ(demo.ask("GET", "/timers?all").status, 400);
}

TEST(Demo, MetricsCountTimers) {
  Demo demo;
  EXPECT_EQ(demo.get("/delay?ms=5")["state"], "expired");
  RawClient waiting = demo.begin_delay("ms=3600000&name=x");
  ASSERT_TRUE(demo.comes_to("x", 1));
  EXPECT_EQ(demo.post("/cancel?name=x")["cancelled"], 1);
  ASSERT_TRUE(waiting.reply());
  const HttpReply reply = demo.ask("GET", "/metrics");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("Content-Type"), "text/plain; version=0.0.4");
  for (const char* line :
       {"\nworkflow_timers_created_total 2\n", "\nworkflow_timers_ended_total{how=\"fired\"} 1\n",
        "\nworkflow_timers_ended_total{how=\"cancelled\"} 1\n", "\nworkflow_timers_outstanding 0\n",
        "\nworkflow_timers_lateness_seconds_count 1\n"}) {
    EXPECT_NE(reply.body.find(line), std::string::npos) << line << reply.body;
  }
}

TEST(Demo, ExpiredDelaysAreNotOutstanding) {
  Demo demo;
  EXPECT_EQ(demo.get("/delay?ms=5&name=x")["state"], "expired");
  EXPECT_EQ(demo.get("/delay?ms=5")["state"], "expired");
  EXPECT_EQ(demo.get("/timers"), json({{"names", json::object()}, {"unnamed", 0}}));
}

TEST(Demo, NamesAreAnyText) {
  Demo demo;
  const std::vector<std::pair<std::string, std::string>> names = {
      {"two%20words", "two words"},
      {"two+words", "two words"},
      {"%C3%A9t%c3%a9", "\xc3\xa9t\xc3\xa9"},
      {"%22%5C%0A%00", std::string("\"\\\n\0", 4)},
      {"a%26b%3Dc", "a&b=c"},
      {"a=b", "a=b"},
      {std::string(4000, 'n'), std::string(4000, 'n')}};
  for (const auto& [encoded, name] : names) {
    RawClient client = demo.begin_delay("name=" + encoded + "&ms=3600000");
    ASSERT_TRUE(demo.comes_to(name, 1)) << encoded;
    EXPECT_EQ(demo.post("/cancel?name=" + encoded), json({{"name", name}, {"cancelled", 1}}));
    EXPECT_EQ(Demo::reply_of(client)["name"], name);
  }
}

TEST(Demo, BadParametersAre400WithAMessage) {
  Demo demo;
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"/delay", "'ms' is missing"},
      {"/delay?", "'ms' is missing"},
      {"/delay?name=x", "'ms' is missing"},
      {"/delay?ms", "'ms' must be a whole number"},
      {"/delay?ms=", "'ms' must be a whole number"},
      {"/delay?ms=abc", "'ms' must be a whole number from 0 to 86400000, not 'abc'"},
      {"/delay?ms=-1", "not '-1'"},
      {"/delay?ms=+1", "not ' 1'"},
      {"/delay?ms=1.5", "not '1.5'"},
      {"/delay?ms=0x10", "not '0x10'"},
      {"/delay?ms=10%20", "not '10 '"},
      {"/delay?ms=86400001", "not '86400001'"},
      {"/delay?ms=18446744073709551617", "not '18446744073709551617'"},
      {"/delay?ms=1&ms=1", "'ms' is given more than once"},
      {"/delay?ms=1&%6ds=1", "'ms' is given more than once"},
      {"/delay?ms=1&name=", "'name' is empty"},
      {"/delay?ms=1&name", "'name' is empty"},
      {"/delay?ms=1&name=a&name=b", "'name' is given more than once"},
      {"/delay?ms=1&name=%", "bad percent-encoding"},
      {"/delay?ms=1&name=%4", "bad percent-encoding"},
      {"/delay?ms=1&name=%zz", "bad percent-encoding"},
      {"/delay?ms=1&name=%ff", "'name' is not UTF-8"},
      {"/delay?ms=1&nam=x", "unknown parameter 'nam'"},
      {"/delay?ms=1&%ff=x", "unknown parameter"}};
  for (const auto& [target, message] : bad) {
    const HttpReply reply = demo.ask("GET", target);
    EXPECT_EQ(reply.status, 400) << target;
    EXPECT_EQ(reply.field("Content-Type"), "application/json") << target;
    const std::string error = Demo::parsed(reply).value("error", "");
    EXPECT_NE(error.find(message), std::string::npos) << target << ": " << error;
  }
  for (const auto& [target, message] : std::vector<std::pair<std::string, std::string>>{
           {"/cancel", "'name' is missing"},
           {"/cancel?name=", "'name' is empty"},
           {"/cancel?name=x&max=", "'max' must be a whole number"},
           {"/cancel?name=x&max=-1", "not '-1'"},
           {"/cancel?name=x&max=2147483648", "not '2147483648'"},
           {"/cancel?name=x&max=1&max=1", "'max' is given more than once"},
           {"/cancel?name=x&ms=1", "unknown parameter 'ms'"}}) {
    const HttpReply reply = demo.ask("POST", target);
    EXPECT_EQ(reply.status, 400) << target;
    const std::string error = Demo::parsed(reply).value("error", "");
    EXPECT_NE(error.find(message), std::string::npos) << target << ": " << error;
  }
  EXPECT_EQ(demo.get("/timers"), json({{"names", json::object()}, {"unnamed", 0}}));
}

TEST(Demo, UnknownPathIs404) {
  Demo demo;
  for (const char* target : {"/nothing", "/delay/", "/delays?ms=1", "//", "/%ff", "/DELAY?ms=1"}) {
    const HttpReply reply = demo.ask("GET", target);
    EXPECT_EQ(reply.status, 404) << target;
    EXPECT_TRUE(Demo::parsed(reply).contains("error")) << target;
  }
  EXPECT_EQ(demo.ask("POST", "/nothing").status, 404);
}

TEST(Demo, WrongMethodIs405WithAllow) {
  Demo demo;
  for (const char* target : {"/", "/delay?ms=1", "/timers", "/metrics"}) {
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
      const HttpReply reply = demo.ask(method, target);
      EXPECT_EQ(reply.status, 405) << method << target;
      EXPECT_EQ(reply.field("Allow"), "GET, HEAD") << method << target;
    }
  }
  for (const char* method : {"GET", "HEAD", "DELETE"}) {
    const HttpReply reply = demo.ask(method, "/cancel?name=x");
    EXPECT_EQ(reply.status, 405) << method;
    EXPECT_EQ(reply.field("Allow"), "POST") << method;
  }
}

TEST(Demo, HeadIsAllowedWhereGetIs) {
  Demo demo;
  for (const char* target : {"/", "/delay?ms=20", "/timers", "/metrics"}) {
    RawClient client(demo.port);
    const auto reply = client.ask(tutorial_test::request_for("HEAD", target), true);
    ASSERT_TRUE(reply) << target;
    EXPECT_EQ(reply->status, 200) << target;
    EXPECT_NE(reply->field("Content-Length"), "0") << target;
    // The next reply is in its place only if no body came.
    EXPECT_EQ(client.ask(tutorial_test::request_for("GET", "/timers"))->status, 200) << target;
  }
}

TEST(Demo, AbsoluteTargetsAreUnderstood) {
  Demo demo;
  EXPECT_EQ(demo.ask("GET", "http://demo").status, 200);
  EXPECT_EQ(demo.ask("GET", "http://demo/timers").status, 200);
  EXPECT_EQ(demo.ask("GET", "http://demo/delay?ms=1").status, 200);
  EXPECT_EQ(demo.ask("GET", "http://demo?x=/delay").status, 200);
}

TEST(Demo, ClientsThatLeaveDisturbNobody) {
  Demo demo;
  for (int i = 0; i < 20; i++) {
    RawClient leaves = demo.begin_delay("ms=3600000&name=gone");
    RawClient resets = demo.begin_delay("ms=50&name=reset");
    resets.reset();
  }
  ASSERT_TRUE(demo.comes_to("gone", 20) && demo.comes_to("reset", 0));
  EXPECT_EQ(demo.post("/cancel?name=gone")["cancelled"], 20);
  EXPECT_EQ(demo.get("/delay?ms=1")["state"], "expired");
}

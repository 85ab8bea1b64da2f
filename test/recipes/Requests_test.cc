#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "recipes/Recipes.h"
#include "workflow/HttpUtil.h"
#include "workflow/StringUtil.h"
#include "workflow/URIParser.h"
#include "workflow/WFHttpServer.h"

namespace recipes_test {
namespace {

// Recipe
struct Route {
  std::string method;
  std::vector<std::string> path;  // Its segments; "*" stands for any one.
  std::function<void(WFHttpTask*, const std::vector<std::string>& path)> handle;
};

void route(const std::vector<Route>& routes, WFHttpTask* task) {
  std::string target = task->get_req()->get_request_uri();
  if (const size_t host = target.find("://"); target[0] != '/' && host != std::string::npos)
    target.erase(0, target.find_first_of("/?", host + 3));  // It is "http://host/path".
  const auto path = URIParser::split_path(target.substr(0, target.find('?')));
  std::string method = task->get_req()->get_method();
  if (method == "HEAD") method = "GET";
  std::string allowed;
  for (const Route& each : routes) {
    const auto fits = [](const std::string& a, const std::string& b) { return b == "*" || a == b; };
    if (!std::equal(path.begin(), path.end(), each.path.begin(), each.path.end(), fits)) continue;
    if (each.method == method) return each.handle(task, path);
    allowed += (allowed.empty() ? "" : ", ") + each.method;
  }
  const int status = allowed.empty() ? HttpStatusNotFound : HttpStatusMethodNotAllowed;
  protocol::HttpUtil::set_response_status(task->get_resp(), status);
  if (!allowed.empty()) task->get_resp()->set_header_pair("Allow", allowed);
}
// End of recipe

// Recipe
using Pairs = std::map<std::string, std::string>;

Pairs decode_pairs(const std::string& encoded) {
  const auto decode = [](std::string text) {
    StringUtil::url_decode(text);
    return text;
  };
  Pairs pairs;
  for (const auto& [name, value] : URIParser::split_query(encoded))
    pairs.emplace(decode(name), decode(value));
  return pairs;
}

Pairs read_query(const protocol::HttpRequest* request) {
  const std::string target = request->get_request_uri();
  const size_t mark = target.find('?');
  return mark == std::string::npos ? Pairs() : decode_pairs(target.substr(mark + 1));
}

Pairs read_form(const protocol::HttpRequest* request) {
  const std::string type = protocol::HttpHeaderMap(request).get("Content-Type");
  if (!StringUtil::start_with(type, "application/x-www-form-urlencoded")) return Pairs();
  return decode_pairs(protocol::HttpUtil::decode_chunked_body(request));
}
// End of recipe

// Recipe
struct HttpError : std::runtime_error {
  HttpError(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

void reply_json(WFHttpTask* task, int status, const nlohmann::json& body) {
  protocol::HttpUtil::set_response_status(task->get_resp(), status);
  task->get_resp()->set_header_pair("Content-Type", "application/json");
  task->get_resp()->clear_output_body();
  task->get_resp()->append_output_body(
      body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void answer_json(WFHttpTask* task, const std::function<nlohmann::json(nlohmann::json)>& handle) {
  try {
    const std::string body = protocol::HttpUtil::decode_chunked_body(task->get_req());
    reply_json(task, HttpStatusOK, handle(nlohmann::json::parse(body)));
  } catch (const HttpError& error) {
    reply_json(task, error.status, {{"error", error.what()}});
  } catch (const nlohmann::json::exception& error) {  // It is no JSON, or lacks what is wanted.
    reply_json(task, HttpStatusBadRequest, {{"error", error.what()}});
  } catch (const std::exception&) {
    reply_json(task, HttpStatusInternalServerError, {{"error", "internal error"}});
  }
}
// End of recipe

class RequestsRecipe : public testing::Test {
 protected:
  static void reply(WFHttpTask* task, const Pairs& pairs) {
    for (const auto& [name, value] : pairs)
      task->get_resp()->append_output_body(name + "=" + value + ";");
  }

  const std::vector<Route> routes_ = {
      {"GET",
       {"users", "*"},
       [](WFHttpTask* task, const std::vector<std::string>& path) {
         task->get_resp()->append_output_body("user " + path[1]);
       }},
      {"DELETE", {"users", "*"}, [](WFHttpTask*, const std::vector<std::string>&) {}},
      {"GET",
       {"query"},
       [](WFHttpTask* task, const auto&) { reply(task, read_query(task->get_req())); }},
      {"POST",
       {"form"},
       [](WFHttpTask* task, const auto&) { reply(task, read_form(task->get_req())); }},
      {"POST",
       {"double"},
       [](WFHttpTask* task, const auto&) {
         answer_json(task, [](const nlohmann::json& body) -> nlohmann::json {
           if (body.at("number") == 13) throw HttpError(HttpStatusConflict, "not thirteen");
           if (body.at("number") == 0) throw std::runtime_error("a secret");
           return {{"number", body.at("number").get<int>() * 2}, {"text", "\xff"}};
         });
       }},
      {"GET", {}, [](WFHttpTask* task, const auto&) {
         task->get_resp()->append_output_body("root");
       }}};
  const LocalServer server_{[this](WFHttpTask* task) { route(routes_, task); }};
  const std::string url_ = server_.url();
};

TEST_F(RequestsRecipe, RoutesByMethodAndPath) {
  EXPECT_EQ(ask(url_ + "/users/7?x=/y").body, "user 7");
  EXPECT_EQ(ask(url_ + "/users//7/").body, "user 7");
  EXPECT_EQ(ask(url_).body, "root");
  EXPECT_EQ(ask(url_ + "/?x").body, "root");
  EXPECT_EQ(ask(url_ + "/users/7", [](auto* request) { request->set_method("HEAD"); }).status, 200);
}

TEST_F(RequestsRecipe, RoutesTargetsThatNameTheHost) {
  const auto with_target = [this](const char* target) {
    return ask(url_, [target](auto* request) { request->set_request_uri(target); });
  };
  EXPECT_EQ(with_target("http://x/users/7").body, "user 7");
  EXPECT_EQ(with_target("http://x").body, "root");
  EXPECT_EQ(with_target("http://x?a=/users/7").body, "root");
  EXPECT_EQ(with_target("//users/7").body, "user 7");
  EXPECT_EQ(with_target("/users/7?back=http://x/").body, "user 7");
}

TEST_F(RequestsRecipe, SaysWhatIsNotThere) {
  EXPECT_EQ(ask(url_ + "/users").status, 404);
  EXPECT_EQ(ask(url_ + "/users/7/name").status, 404);
  const Answer refused = post(url_ + "/users/7", "text/plain", "");
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.allow, "GET, DELETE");
  EXPECT_EQ(ask(url_ + "/users",
                [](auto* request) {
                  request->set_method("OPTIONS");
                  request->set_request_uri("*");
                })
                .status,
            404);
}

TEST_F(RequestsRecipe, ReadsQueries) {
  EXPECT_EQ(ask(url_ + "/query?name=J%C3%B6rg+K%26K&empty=&none").body,
            "empty=;name=J\xc3\xb6rg K&K;none=;");
  EXPECT_EQ(ask(url_ + "/query").body, "");
}

TEST_F(RequestsRecipe, ReadsForms) {
  const std::string type = "application/x-www-form-urlencoded";
  EXPECT_EQ(post(url_ + "/form", type, "a=1+2&b=%3D").body, "a=1 2;b==;");
  EXPECT_EQ(post(url_ + "/form", type + "; charset=utf-8", "a=1").body, "a=1;");
  EXPECT_EQ(post(url_ + "/form", "text/plain", "a=1").body, "");
}

TEST_F(RequestsRecipe, AnswersJson) {
  const auto ask_double = [this](const std::string& body) {
    return post(url_ + "/double", "application/json", body);
  };
  EXPECT_EQ(ask_double("{\"number\": 21}").body, "{\"number\":42,\"text\":\"\xef\xbf\xbd\"}");
  EXPECT_EQ(ask_double("{\"number\": 13}").status, 409);
  EXPECT_EQ(ask_double("{\"number\": 13}").body, "{\"error\":\"not thirteen\"}");
  EXPECT_EQ(ask_double("{\"number\": \"x\"}").status, 400);
  EXPECT_EQ(ask_double("{").status, 400);
  EXPECT_EQ(ask_double("").status, 400);
  EXPECT_EQ(ask_double("[]").status, 400);
  const Answer failed = ask_double("{\"number\": 0}");
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.body, "{\"error\":\"internal error\"}");
}

}  // namespace
}  // namespace recipes_test

#include "Service.h"

#include <chrono>
#include <climits>
#include <utility>

#include "Query.h"
#include "Reply.h"
#include "workflow/WFTimer.h"
#include "workflow/WFTimerStats.h"

namespace {

constexpr uint64_t kMaxDelayMs = uint64_t{24} * 3600 * 1000;
constexpr uint64_t kMaxReminderMs = 366 * kMaxDelayMs;
constexpr uint64_t kMaxListed = 1000;

int64_t milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

struct Target {
  std::string_view path;
  std::string_view query;
};

// Parses "/path?query", or the "http://host/path?query" that a client of a proxy sends.
Target target_of(const WFHttpTask* task) {
  std::string_view uri = task->get_req()->get_request_uri();
  if (!uri.empty() && uri.front() != '/') {
    const size_t authority = uri.find("://");
    const size_t path = authority == uri.npos ? uri.npos : uri.find_first_of("/?", authority + 3);
    uri = path == uri.npos ? "/" : uri.substr(path);
  }
  const size_t mark = uri.find('?');
  if (mark == uri.npos) {
    return {uri, {}};
  }
  return {mark == 0 ? "/" : uri.substr(0, mark), uri.substr(mark + 1)};
}

}  // namespace

struct Service::Route {
  std::string_view path;
  const char* allow;
  void (Service::*action)(WFHttpTask*, std::string_view query);

  bool allows(std::string_view method) const {
    const bool post = std::string_view(allow) == "POST";
    return post ? method == "POST" : method == "GET" || method == "HEAD";
  }
};

const Service::Route Service::kRoutes[] = {
    {"/", "GET, HEAD", &Service::show_help},
    {"/delay", "GET, HEAD", &Service::delay},
    {"/remind", "POST", &Service::remind},
    {"/cancel", "POST", &Service::cancel},
    {"/timers", "GET, HEAD", &Service::show_timers},
    {"/metrics", "GET, HEAD", &Service::show_metrics},
};

void Service::process(WFHttpTask* task) {
  const Target target = target_of(task);
  for (const Route& route : kRoutes) {
    if (route.path != target.path) {
      continue;
    }
    if (route.allows(task->get_req()->get_method())) {
      (this->*route.action)(task, target.query);
    } else {
      task->get_resp()->set_header_pair("Allow", route.allow);
      reply_error(task, HttpStatusMethodNotAllowed,
                  std::string(route.path) + " allows only " + route.allow);
    }
    return;
  }
  reply_error(task, HttpStatusNotFound,
              "there is no " + std::string(target.path) + "; see GET / for what there is");
}

void Service::show_help(WFHttpTask* task, std::string_view) {
  const std::string host = protocol::HttpHeaderMap(task->get_req()).get("Host");
  const std::string url = "http://" + (host.empty() ? "127.0.0.1" : host);
  reply(task, HttpStatusOK, "text/plain; charset=utf-8",
        "A server whose replies are delayed by timers that can be cancelled by name. Try\n\n" +
            curl_lines(url, reminders_ != nullptr));
}

void Service::delay(WFHttpTask* task, std::string_view query_text) {
  Query query(query_text, {"ms", "name"});
  const uint64_t ms = query.required_number("ms", kMaxDelayMs);
  const std::optional<std::string> name = query.text("name");
  if (!query.error().empty()) {
    reply_error(task, HttpStatusBadRequest, query.error());
    return;
  }
  // The reply is sent when the series has no task left: after this timer and its callback.
  series_of(task)->push_back(delays_.create(name, ms, [task, name](const Delays::End& end) {
    reply_json(task, HttpStatusOK,
               {{"name", name ? json(*name) : json(nullptr)},
                {"state", end.state},
                {"waited_ms", end.waited_ms}});
  }));
}

void Service::remind(WFHttpTask* task, std::string_view query_text) {
  if (!reminders_) {
    reply_error(task, HttpStatusNotFound,
                "there is no store for reminders; start the demo with --store=URL");
    return;
  }
  Query query(query_text, {"ms", "name"});
  const uint64_t ms = query.required_number("ms", kMaxReminderMs);
  const std::string name = query.required_text("name");
  if (!query.error().empty()) {
    reply_error(task, HttpStatusBadRequest, query.error());
    return;
  }
  const void* body = nullptr;
  size_t size = 0;
  task->get_req()->get_parsed_body(&body, &size);
  const std::string payload(static_cast<const char*>(body), size);
  reminders_->store(task, name, ms, payload,
                    [task](const json& stored) { reply_json(task, HttpStatusCreated, stored); });
}

void Service::cancel(WFHttpTask* task, std::string_view query_text) {
  Query query(query_text, {"name", "max"});
  const std::string name = query.required_text("name");
  const uint64_t max = query.number("max", INT_MAX).value_or(INT_MAX);
  if (!query.error().empty()) {
    reply_error(task, HttpStatusBadRequest, query.error());
    return;
  }
  // At once: a store that does not answer keeps no reply waiting.
  const json body = {{"name", name}, {"cancelled", delays_.cancel(name, max)}};
  if (reminders_ && name.size() <= Reminders::kMaxName) {
    reminders_->cancel(task, name, max, body);
  } else {
    reply_json(task, HttpStatusOK, body);
  }
}

void Service::show_timers(WFHttpTask* task, std::string_view query_text) {
  Query query(query_text, {"list"});
  const std::optional<uint64_t> listed = query.number("list", kMaxListed);
  if (!query.error().empty()) {
    reply_error(task, HttpStatusBadRequest, query.error());
    return;
  }
  const Delays::Counts counts = delays_.counts();
  // A pair of braces more would make a list of the map.
  json body = {{"names", json(counts.names)}, {"unnamed", counts.unnamed}};
  if (listed) {
    body["list"] = json::array();
    for (const WFTimerInfo& timer : WFTimer::list("", *listed)) {
      body["list"].push_back({{"name", timer.name},
                              {"remaining_ms", milliseconds(timer.remaining)},
                              {"age_ms", milliseconds(timer.age)}});
    }
  }
  if (!reminders_) {
    reply_json(task, HttpStatusOK, body);
    return;
  }
  reminders_->show(task, listed.value_or(0), [task, body](const json& stored) {
    json all = body;
    all["stored"] = stored;
    reply_json(task, HttpStatusOK, all);
  });
}

void Service::show_metrics(WFHttpTask* task, std::string_view) {
  reply(task, HttpStatusOK, "text/plain; version=0.0.4",
        WFTimerStats::snapshot().to_prometheus() + (reminders_ ? reminders_->metrics() : ""));
}

size_t Service::outstanding() const {
  const Delays::Counts counts = delays_.counts();
  size_t sum = counts.unnamed;
  for (const auto& [name, count] : counts.names) {
    sum += count;
  }
  return sum;
}

std::string curl_lines(const std::string& url, bool with_store) {
  std::string lines = "  curl '" + url + "/delay?ms=2000'\n" +              //
                      "  curl '" + url + "/delay?ms=60000&name=tea' &\n" +  //
                      "  curl '" + url + "/timers?list=10'\n" +             //
                      "  curl '" + url + "/metrics'\n";
  if (with_store) {
    lines += "  curl -d 'the tea is ready' '" + url + "/remind?ms=60000&name=tea'\n";
  }
  return lines + "  curl -X POST '" + url + "/cancel?name=tea'\n" + "  curl -X POST '" + url +
         "/cancel?name=tea&max=1'\n";
}

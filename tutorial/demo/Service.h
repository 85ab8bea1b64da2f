#pragma once

#include <string>
#include <string_view>

#include "Delays.h"
#include "Reminders.h"
#include "workflow/WFHttpServer.h"

// What the demo answers. README.md in this folder has the interface.
//
// Thread-safe: requests are processed side by side. Outlives the server's series.
class Service {
 public:
  // `reminders` is null if there is no store, and outlives the server's series otherwise.
  explicit Service(Reminders* reminders) : reminders_(reminders) {}

  // The server's process function.
  void process(WFHttpTask* task);

  size_t outstanding() const;

 private:
  struct Route;
  static const Route kRoutes[];

  void show_help(WFHttpTask* task, std::string_view query);
  void delay(WFHttpTask* task, std::string_view query);
  void remind(WFHttpTask* task, std::string_view query);
  void cancel(WFHttpTask* task, std::string_view query);
  void show_timers(WFHttpTask* task, std::string_view query);
  void show_metrics(WFHttpTask* task, std::string_view query);

  Reminders* const reminders_;
  Delays delays_;
};

// Commands to try, one a line, for a server at `url`.
std::string curl_lines(const std::string& url, bool with_store);

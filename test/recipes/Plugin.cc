#include <cerrno>
#include <chrono>
#include <string>

#include "workflow/WFTaskFactory.h"

// The plugin of the recipe: a module that PluginHost.cc opens. Both use the shared library.

// Recipe
// The plugin. `answer` belongs to the program.
extern "C" SubTask* create_plugin_task(std::string* answer) {
  const auto ended = [answer](WFTimerTask* timer) {
    *answer = timer->get_error() == ECANCELED ? "cancelled" : "expired";
  };
  return WFTaskFactory::create_timer_task("of the plugin", std::chrono::hours(1), ended);
}
// End of recipe

#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

// The program of the recipe. Plugin_test.cc runs it with the path of a plugin, and reads what it
// prints.

// Recipe
// The program.
using CreateTask = SubTask* (*)(std::string* answer);

// Opens a plugin, which stays in memory for ever. Null if it fails: dlerror() says why.
CreateTask open_plugin(const char* path) {
  void* plugin = dlopen(path, RTLD_NOW | RTLD_NODELETE);
  if (plugin == nullptr) return nullptr;
  return reinterpret_cast<CreateTask>(dlsym(plugin, "create_plugin_task"));
}

std::string run_plugin(CreateTask create_task) {
  std::string answer;
  WFFacilities::WaitGroup ended(1);
  const auto callback = [&ended](const SeriesWork*) { ended.done(); };
  Workflow::create_series_work(create_task(&answer), callback)->start();
  WFTaskFactory::cancel_by_name("of the plugin");  // names are the same in both
  ended.wait();
  return answer;
}
// End of recipe

int main(int /*argc*/, char** argv) {
  const CreateTask create_task = open_plugin(argv[1]);
  std::printf("%s\n", create_task == nullptr ? dlerror() : run_plugin(create_task).c_str());
}

// WFFuture.h alone brings what belongs to the process as a whole.
#include "workflow/WFFuture.h"

int value_of(std::future<int>&& standard) {
  WFFuture<int> future(std::move(standard));
  return future.get();
}

int handlers() {
  return WFGlobal::get_global_settings()->handler_threads;
}

// What the rows coroutine_* have in common that use the library. Header only.
#pragma once

#include <workflow/WFFacilities.h>
#include <workflow/WFGlobal.h>

namespace bench {

// One thread waits for both ends of the connection of the ping, as with the peers. With more, the
// ends are on one thread or on two, depending on which thread sends the first request, and each
// change of threads costs microseconds.
inline void start_library() {
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  WORKFLOW_library_init(&settings);
  WFFacilities::usleep(1000);  // the threads start here, not in the first measurement
}

}  // namespace bench

// Rows coroutine_*, for programs written with callbacks. Links: workflow.

#include <netinet/in.h>
#include <workflow/TLVMessage.h>
#include <workflow/WFFacilities.h>
#include <workflow/WFServer.h>
#include <workflow/WFTaskFactory.h>

#include <atomic>

#include "common/CoroutineRows.h"

namespace bench {
namespace {

using protocol::TLVRequest;
using protocol::TLVResponse;
using PingTask = WFNetworkTask<TLVRequest, TLVResponse>;
using PingServer = WFServer<TLVRequest, TLVResponse>;
using PingFactory = WFNetworkTaskFactory<TLVRequest, TLVResponse>;

// A series that lasts as long as each callback gives it another task.
struct Chain {
  explicit Chain(size_t n) : left(n) {}

  void run(SubTask* first) {
    Workflow::start_series_work(first, [this](const SeriesWork*) { finished.done(); });
    finished.wait();
  }

  size_t left;
  WFFacilities::WaitGroup finished{1};
};

WFTimerTask* due_timer(Chain* chain) {
  return WFTaskFactory::create_timer_task(0, 0, [chain](WFTimerTask* task) {
    if (--chain->left > 0) series_of(task)->push_back(due_timer(chain));
  });
}

PingTask* ping_task(Chain* chain, const struct sockaddr_in* address) {
  PingTask* task =
      PingFactory::create_client_task(TT_TCP, reinterpret_cast<const struct sockaddr*>(address),
                                      sizeof *address, 0, [chain, address](PingTask* done) {
                                        if (done->get_state() != WFT_STATE_SUCCESS) std::abort();
                                        if (--chain->left > 0)
                                          series_of(done)->push_back(ping_task(chain, address));
                                      });
  task->get_req()->set_value("ping");
  task->set_keep_alive(10'000);
  return task;
}

class Callbacks {
 public:
  static constexpr const char* kPeer = "callbacks";

  // The least that runs one empty task after the other.
  void empty(size_t n) {
    Chain chain(n);
    chain.run(WFTaskFactory::create_repeater_task(
        [&chain](WFRepeaterTask*) -> SubTask* {
          return chain.left-- > 0 ? WFTaskFactory::create_empty_task() : nullptr;
        },
        nullptr));
  }

  // A step that a series makes of a function.
  void child(size_t n) {
    Chain chain(n);
    size_t sum = 0;
    chain.run(WFTaskFactory::create_repeater_task(
        [&chain, &sum](WFRepeaterTask*) -> SubTask* {
          if (chain.left == 0) return nullptr;
          return WFTaskFactory::create_dynamic_task([&chain, &sum](WFDynamicTask*) {
            sum += --chain.left;
            return WFTaskFactory::create_empty_task();
          });
        },
        nullptr));
    if (sum != n * (n - 1) / 2) std::abort();
  }

  void due(size_t n) {
    Chain chain(n);
    chain.run(due_timer(&chain));
  }

  void ping(size_t n) {
    PingServer server([](PingTask* task) {
      const std::string* value = task->get_req()->get_value();
      task->get_resp()->set_value(*value);
    });
    if (server.start("127.0.0.1", 0) != 0) std::abort();
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
    Chain chain(n);
    chain.run(ping_task(&chain, &address));
    server.stop();
  }

  void sleepers(size_t n) {
    for (size_t i = 0; i < n; ++i)
      WFTaskFactory::create_timer_task(3600, 0, [](WFTimerTask*) {})->start();
  }
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Callbacks program;
  WFFacilities::usleep(1000);  // the threads start here, not in the first measurement
  bench::run_coroutine_rows(program, argc, argv);
  return 0;
}

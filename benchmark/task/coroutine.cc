// Rows coroutine_*, for coroutines of the library. Links: workflow.

#include <netinet/in.h>
#include <workflow/TLVMessage.h>
#include <workflow/WFCoroutine.h>
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

WFCo<> empties(size_t n) {
  for (size_t i = 0; i < n; ++i)
    (void)co_await WFTaskFactory::create_empty_task();
}

WFCo<size_t> one_child(size_t i) {
  co_return i;
}

WFCo<> children(size_t n) {
  size_t sum = 0;
  for (size_t i = 0; i < n; ++i)
    sum += co_await one_child(i);
  if (sum != n * (n - 1) / 2) std::abort();
}

WFCo<> sleeps(size_t n) {
  for (size_t i = 0; i < n; ++i)
    (void)co_await wf::sleep(std::chrono::nanoseconds(0));
}

WFCo<> sleep_long(std::atomic<size_t>* sleeping) {
  sleeping->fetch_add(1, std::memory_order_relaxed);
  (void)co_await wf::sleep(std::chrono::hours(1));
}

WFCo<> ask(const struct sockaddr_in* address, size_t n) {
  const auto* const to = reinterpret_cast<const struct sockaddr*>(address);
  for (size_t i = 0; i < n; ++i) {
    PingTask* const task = PingFactory::create_client_task(TT_TCP, to, sizeof *address, 0, nullptr);
    task->get_req()->set_value("ping");
    task->set_keep_alive(10'000);
    const auto answer = co_await task;
    if (!answer) std::abort();
  }
}

class Coroutines {
 public:
  static constexpr const char* kPeer = "ours";

  void empty(size_t n) { run(wf::task(empties, n)); }
  void child(size_t n) { run(wf::task(children, n)); }
  void due(size_t n) { run(wf::task(sleeps, n)); }

  void ping(size_t n) {
    PingServer server([](PingTask* task) {
      const std::string* value = task->get_req()->get_value();
      task->get_resp()->set_value(*value);
    });
    if (server.start("127.0.0.1", 0) != 0) std::abort();
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
    run(wf::task(ask, &address, n));
    server.stop();
  }

  void sleepers(size_t n) {
    std::atomic<size_t> sleeping{0};
    for (size_t i = 0; i < n; ++i)
      wf::task(sleep_long, &sleeping)->start();
    while (sleeping < n)
      sleep_ns(kNsPerMs);
  }

 private:
  static void run(SubTask* task) {
    WFFacilities::WaitGroup finished(1);
    Workflow::start_series_work(task, [&finished](const SeriesWork*) { finished.done(); });
    finished.wait();
  }
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Coroutines program;
  WFFacilities::usleep(1000);  // the threads start here, not in the first measurement
  bench::run_coroutine_rows(program, argc, argv);
  return 0;
}

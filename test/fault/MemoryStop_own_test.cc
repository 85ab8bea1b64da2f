#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "support/Datagrams.h"
#include "support/Descriptors.h"
#include "support/MemoryFaults.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFHttpStream.h"

// A server that is stopped when memory has run out: each allocation of the stop, and of the
// library's threads meanwhile, fails in its turn, alone or with all that follow. The stop returns,
// every request's task has its callback, and nothing is left.

namespace {

using namespace server_test;

constexpr long kAll = 1'000'000'000;

struct Calls {
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
};

// Some replies are a little late, some for ever; one is a stream, one that nobody reads is large.
void serve(Calls& calls, WFHttpTask* task) {
  static const std::string large(16 * 1024 * 1024, 'x');
  calls.begun++;
  task->set_callback([&calls](WFHttpTask*) { calls.ended++; });
  const std::string target = task->get_req()->get_request_uri();
  if (target == "/late") {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(2000, nullptr));
  } else if (target == "/never") {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(3600, 0, nullptr));
  } else if (target == "/stream") {
    WFHttpStream::begin(task);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(3600, 0, nullptr));
  } else if (target == "/large") {
    task->get_resp()->append_output_body_nocopy(large);
  }
}

class MemoryStop : public testing::TestWithParam<long> {
 protected:
  // `prepare` makes a server with connections and requests, `stop` is called without memory; then
  // what `prepare` made is destroyed.
  template <class Scene>
  void fail_each(void (*stop)(Scene&)) {
    { Scene first; }  // so that the library runs
    const size_t descriptors = test_support::descriptor_count();
    long n = 1;
    // How many there are varies a little.
    for (int without = 0; without < 3; n += 1) {
      Scene scene;
      ASSERT_TRUE(scene.prepare());
      fault::counts_here = true;
      fault::arm(n, GetParam());
      stop(scene);
      const long failures = fault::disarm();
      fault::counts_here = false;
      without = failures == 0 ? without + 1 : 0;
      ASSERT_TRUE(scene.ends()) << "allocation " << n;
    }
    std::printf("%ld allocations\n", n);
    EXPECT_TRUE(test_support::descriptors_return_to(descriptors));
  }
};

struct HttpScene {
  Calls calls;
  TestServer server{[this](WFHttpTask* task) { serve(calls, task); }, params()};
  std::vector<RawClient> clients;

  // The clients do not close their side.
  static struct WFServerParams params() {
    struct WFServerParams params = server_test::http_params();
    params.linger_timeout = 5;
    return params;
  }
  bool prepare(const std::vector<const char*>& targets) {
    for (const char* target : targets) {
      clients.push_back(server.client());
      if (!clients.back().send(get(target))) return false;
    }
    clients.push_back(server.client());  // asks for nothing
    const auto requests = static_cast<int>(targets.size());
    return eventually([&] { return server.processed() == requests; }) &&
           server.has_connections(clients.size());
  }
  bool ends() {
    server->stop(0, WF_STOP_DROP);
    return eventually([&] { return calls.begun == calls.ended; });
  }
};

// All of it ends by itself.
struct Brief : HttpScene {
  bool prepare() { return HttpScene::prepare({"/", "/late", "/late"}); }
};

struct Endless : HttpScene {
  bool prepare() { return HttpScene::prepare({"/", "/late", "/never", "/stream", "/large"}); }
};

struct Datagrams {
  Calls calls;
  NoteServer server{[this](NoteTask* task) {
                      calls.begun++;
                      server_test::echo_note(task);
                      task->set_callback([this](NoteTask*) { calls.ended++; });
                      series_of(task)->push_back(WFTaskFactory::create_timer_task(
                          task->get_req()->text == "=" ? 0 : 3600, 0, nullptr));
                    },
                    params()};
  std::unique_ptr<UdpSocket> client;

  bool prepare() {
    client = std::make_unique<UdpSocket>(server.port());
    return client->send("=") && client->send("=never") && client->send("=never") &&
           eventually([this] { return calls.begun == 3; });
  }
  bool ends() {
    server.stop(0, WF_STOP_DROP);
    return eventually([this] { return calls.begun == calls.ended; });
  }
  static struct WFServerParams params() {
    struct WFServerParams params = server_test::udp_params();
    params.linger_timeout = 5;
    return params;
  }
};

TEST_P(MemoryStop, Stop) {
  fail_each<Brief>([](Brief& scene) { scene.server->stop(); });
}

TEST_P(MemoryStop, Shutdown) {
  fail_each<Endless>([](Endless& scene) { scene.server->shutdown(); });
}

TEST_P(MemoryStop, WithinATime) {
  fail_each<Endless>([](Endless& scene) { scene.server->stop(1, WF_STOP_DROP); });
}

TEST_P(MemoryStop, WithAnAnswer) {
  fail_each<Endless>([](Endless& scene) { scene.server->stop(1, WF_STOP_ANSWER); });
}

TEST_P(MemoryStop, AsTheRepliesAre) {
  fail_each<Endless>([](Endless& scene) { scene.server->stop(1, WF_STOP_FINISH); });
}

TEST_P(MemoryStop, OfDatagrams) {
  fail_each<Datagrams>([](Datagrams& scene) { scene.server.stop(1, WF_STOP_ANSWER); });
}

// The server looks whether the caller is one of its requests.
TEST(MemoryWait, BeginsInAParallelThatRunsAlone) {
  WFHttpServer server([](WFHttpTask*) {});
  test_support::Tally ended;
  SeriesWork* const branch = Workflow::create_series_work(
      WFTaskFactory::create_timer_task(0, 0,
                                       [&server](WFTimerTask*) {
                                         fault::arm(1);
                                         EXPECT_NO_THROW(server.wait_finish());
                                         fault::disarm();
                                       }),
      nullptr);
  Workflow::start_parallel_work(&branch, 1, [&ended](const ParallelWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
}

INSTANTIATE_TEST_SUITE_P(Failing, MemoryStop, testing::Values(0, kAll), [](const auto& more) {
  return std::string(more.param == 0 ? "One" : "AllThatFollow");
});

}  // namespace

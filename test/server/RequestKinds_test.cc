#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/Background.h"
#include "support/FakeDnsServer.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "support/UdpSocket.h"
#include "workflow/Executor.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFCron.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTimer.h"

// Each kind of task that can wait ends with the scope of its request, for each reason that there is
// for that: the table of docs/scopes.md. Two requests hold all kinds at once, and end together.
// Requests to stores of timers, which are another library's, are tested in test/store.

namespace server_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

enum class Reason { kClientLeaves, kRequestDeadline, kBoundedStop, kCancel, kDeadlineAround };

std::string reason_name(const testing::TestParamInfo<Reason>& info) {
  static const std::map<Reason, std::string> names = {
      {Reason::kClientLeaves, "WhenTheClientLeaves"},
      {Reason::kRequestDeadline, "AtTheDeadlineOfTheRequest"},
      {Reason::kBoundedStop, "AtTheLimitOfAStop"},
      {Reason::kCancel, "WhenTheScopeIsCancelled"},
      {Reason::kDeadlineAround, "AtADeadlineInside"}};
  return names.at(info.param);
}

int error_of(Reason reason) {
  switch (reason) {
    case Reason::kRequestDeadline:
    case Reason::kDeadlineAround:
      return ETIMEDOUT;
    case Reason::kCancel:
      return EBUSY;
    default:
      return ECANCELED;
  }
}

// How a kind ends.
enum class KindEnd {
  kReason,  // its callback sees the error of the scope
  kStream,  // that, or ECONNRESET if the client has left
  kGone,    // its task is dropped, and its series cancelled
  kRuns,    // its function runs on: SUCCESS when that has returned, but ETIMEDOUT at once
  kOwn      // SUCCESS, once what it contains has ended
};

// The tasks of both requests, and how they have ended.
class KindTasks {
 public:
  explicit KindTasks(Reason reason) : reason_(reason) {}

  template <class Task>
  std::function<void(Task*)> noting(const std::string& name, KindEnd end = KindEnd::kReason) {
    expected_[name] = expected(end);
    return [this, name](Task* task) { note(name, task->get_state(), task->get_error()); };
  }
  // A task that must not run, in a series that the scope cancels.
  SubTask* dropped(const std::string& name) {
    expected_[name] = "the series was cancelled";
    return WFTaskFactory::create_timer_task(
        0U, [this, name](WFTimerTask*) { note(name, WFT_STATE_SUCCESS, 0); });
  }
  // `name`: that of the dropped task in it, if there is one.
  SeriesWork* branch(SubTask* first, const std::string& name = "") {
    return Workflow::create_series_work(first, [this, name](const SeriesWork* series) {
      if (!name.empty() && series->is_canceled()) {
        note(name, "the series was cancelled");
      }
    });
  }
  void note(const std::string& name, int state, int error) { note(name, text(state, error)); }

  // Waits until all have ended but for `count`.
  bool all_but(size_t count) const {
    return eventually([this, count] {
      const std::lock_guard<std::mutex> lock(mutex_);
      return ended_.size() + count >= expected_.size();
    });
  }
  void expect_all() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, how] : expected_) {
      const auto found = ended_.find(name);
      EXPECT_EQ(found == ended_.end() ? "it has not ended" : found->second, how) << name;
    }
    EXPECT_EQ(ended_.size(), expected_.size());
  }

 private:
  static std::string text(int state, int error) {
    return "state " + std::to_string(state) + ", error " + std::to_string(error);
  }
  std::string expected(KindEnd end) const {
    const int error = error_of(reason_);
    if (end == KindEnd::kOwn || (end == KindEnd::kRuns && error != ETIMEDOUT)) {
      return text(WFT_STATE_SUCCESS, 0);
    }
    const bool is_reset = end == KindEnd::kStream && reason_ == Reason::kClientLeaves;
    return text(WFT_STATE_SYS_ERROR, is_reset ? ECONNRESET : error);
  }
  void note(const std::string& name, const std::string& how) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string& end = ended_[name];
    end += (end.empty() ? "" : ", and again: ") + how;
  }

  const Reason reason_;
  std::map<std::string, std::string> expected_;  // complete before anything ends
  mutable std::mutex mutex_;
  std::map<std::string, std::string> ended_;
};

// One thread for files, and one connection to each server, so that a second one has to wait.
class RequestKinds : public testing::TestWithParam<Reason> {
 protected:
  RequestKinds() : tasks_(GetParam()) {
    std::ofstream(dir_.path("resolv.conf")) << "nameserver " << names_.address() << "\n";
    names_.set("silent.test", {.how = test_support::DnsReply::How::kDrop});
    resolv_conf_ = dir_.path("resolv.conf");
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.endpoint_params.max_connections = 1;
    settings.fio_max_events = 1;
    settings.resolv_conf_path = resolv_conf_.c_str();
    WORKFLOW_library_init(&settings);
  }

  void occupy();
  void give_back();
  void begin(WFHttpTask* task);
  void begin_streams(WFHttpTask* task);
  void end(TestServer& server, std::vector<RawClient>& clients);

  SeriesWork& scoped_series(WFHttpTask* task);
  void add_timers(ParallelWork& all);
  void add_waiting(ParallelWork& all);
  void add_computations(ParallelWork& all);
  void add_requests(ParallelWork& all);
  void add_structures(ParallelWork& all);

  test_support::TempDir dir_;
  test_support::FakeDnsServer names_;
  std::string resolv_conf_;
  KindTasks tasks_;
  WFScope scopes_[2];
  test_support::Tally dispatched_;
  test_support::Tally running_;
  test_support::Tally series_ended_;
  test_support::Tally function_may_end_;
  std::atomic<int> function_error_{0};
  std::atomic<int> wait_error_{0};

  // What the tasks wait for, which others have.
  WFResourcePool pool_{1};
  void* resource_ = nullptr;
  WFMessageQueue messages_;
  Executor executor_;
  ExecQueue queue_;
  test_support::Tally queue_may_go_on_;
  workflow::UniqueFd lease_;
  test_support::Tally file_done_;
  char buffer_[4];
  // Accept nothing, so their clients wait for an answer.
  workflow::UniqueFd silent_ = test_support::listen_on_loopback();
  workflow::UniqueFd silent_tls_ = test_support::listen_on_loopback();
  workflow::UniqueFd silent_chunks_ = test_support::listen_on_loopback();
  workflow::UniqueFd full_ = test_support::listen_on_loopback(0);
  std::vector<workflow::UniqueFd> waiting_;
  test_support::UdpSocket silent_udp_;
};

// The resource, the guard, the executor's thread, the thread for files and the places in the
// backlog are taken.
void RequestKinds::occupy() {
  test_support::Tally held;
  const auto now = [&held] {
    return WFTaskFactory::create_timer_task(0U, [&held](WFTimerTask*) { held.add(); });
  };
  pool_.get(now(), &resource_)->start();
  WFTaskFactory::create_guard("guard", now())->start();
  ASSERT_EQ(executor_.init(1), 0);
  ASSERT_EQ(queue_.init(), 0);
  WFTaskFactory::create_go_task(&queue_, &executor_, [this, &held] {
    held.add();
    EXPECT_TRUE(queue_may_go_on_.wait_for(1));
  })->start();
  ASSERT_TRUE(held.wait_for(3));

  // open(2) waits for the lease, and would end the process by a signal.
  ::signal(SIGIO, SIG_IGN);
  std::ofstream(dir_.path("leased")) << "1234";
  lease_ = workflow::UniqueFd(::open(dir_.path("leased").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fcntl(lease_.get(), F_SETLEASE, F_WRLCK), 0);
  WFTaskFactory::create_pread_task(dir_.path("leased"), nullptr, 0, 0, [this](WFFileIOTask*) {
    file_done_.add();
  })->start();
  // Somebody waits for it as soon as it has begun to break.
  ASSERT_TRUE(eventually([this] { return ::fcntl(lease_.get(), F_GETLEASE) != F_WRLCK; }));

  const struct sockaddr_in address = test_support::loopback(test_support::port_of(full_.get()));
  for (int i = 0; i < 4; i++) {
    waiting_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(waiting_.back().get(), reinterpret_cast<const struct sockaddr*>(&address),
              sizeof address);
  }
}

void RequestKinds::give_back() {
  pool_.post(resource_);
  WFTaskFactory::release_guard_safe("guard", nullptr);
  EXPECT_EQ(::fcntl(lease_.get(), F_SETLEASE, F_UNLCK), 0);
  EXPECT_TRUE(file_done_.wait_for(1));
  queue_may_go_on_.add();
  executor_.deinit();
  queue_.deinit();
}

// The series in which a request waits. Notes its scope.
SeriesWork& RequestKinds::scoped_series(WFHttpTask* task) {
  const bool is_stream = task->get_req()->get_request_uri() == std::string("/streams");
  WFScope& scope = scopes_[is_stream ? 1 : 0];
  SeriesWork* const series = series_of(task);
  series->set_callback([this](const SeriesWork*) { series_ended_.add(); });
  switch (GetParam()) {
    case Reason::kClientLeaves:
      task->cancel_on_closed();
      break;
    case Reason::kRequestDeadline:
      EXPECT_TRUE(task->set_deadline(hours(1)));
      break;
    case Reason::kDeadlineAround: {
      WFDeadlineTask* const around = with_deadline(
          WFTaskFactory::create_empty_task(), hours(1),
          tasks_.noting<WFDeadlineTask>(is_stream ? "deadline of streams" : "deadline"));
      scope = around->scope();
      series->push_back(around);
      return *around->sub_series();
    }
    default:
      break;
  }
  scope = task->scope();
  return *series;
}

void RequestKinds::begin(WFHttpTask* task) {
  SeriesWork& series = scoped_series(task);
  ParallelWork* const all = Workflow::create_parallel_work(nullptr);
  add_timers(*all);
  add_waiting(*all);
  add_computations(*all);
  add_requests(*all);
  add_structures(*all);
  // Branches are dispatched in order.
  all->add_series(Workflow::create_series_work(
      WFTaskFactory::create_dynamic_task([this](WFDynamicTask*) -> SubTask* {
        dispatched_.add();
        return WFTaskFactory::create_empty_task();
      }),
      nullptr));
  series << all;
  // What would begin to wait afterwards ends, too.
  series << WFTaskFactory::create_timer_task(3600, 0, tasks_.noting<WFTimerTask>("later timer"));
  series << WFTaskFactory::create_counter_task(1, tasks_.noting<WFCounterTask>("later counter"));
  series << WFTaskFactory::create_pread_task(dir_.path("leased"), buffer_, 4, 0,
                                             tasks_.noting<WFFileIOTask>("later file"));
  series << WFTaskFactory::create_http_task("http://127.0.0.1:1/", 0, 2,
                                            tasks_.noting<WFHttpTask>("later client"));
}

// The client does not read, so neither its piece nor anything behind it leaves.
void RequestKinds::begin_streams(WFHttpTask* task) {
  constexpr size_t kMuch = size_t{64} * 1024 * 1024;
  SeriesWork& series = scoped_series(task);
  const WFHttpStream stream = WFHttpStream::begin(task);
  ParallelWork* const both = Workflow::create_parallel_work(nullptr);
  both->add_series(tasks_.branch(stream.create_write_task(
      std::string(kMuch, 'x'), tasks_.noting<WFStreamTask>("piece", KindEnd::kStream))));
  both->add_series(tasks_.branch(
      stream.create_room_task(tasks_.noting<WFStreamTask>("room", KindEnd::kStream))));
  both->add_series(Workflow::create_series_work(
      WFTaskFactory::create_dynamic_task([this](WFDynamicTask*) -> SubTask* {
        dispatched_.add();
        return WFTaskFactory::create_empty_task();
      }),
      nullptr));
  series << both;
}

void RequestKinds::add_timers(ParallelWork& all) {
  WFTimerPeriod hourly;
  hourly.every = hours(1);
  const auto noting = [this](const char* name) { return tasks_.noting<WFTimerTask>(name); };
  SubTask* const timers[] = {
      WFTaskFactory::create_timer_task(3600, 0, noting("timer")),
      WFTaskFactory::create_timer_task("name", 3600, 0, noting("named timer")),
      WFTaskFactory::create_timer_task(-1, 0, noting("timer without an end")),
      WFTimer::create(WFTimerDue(hours(1)), noting("timer with a due")),
      WFTimer::create_periodic(hourly, {}, nullptr, noting("periodic")),
      WFTimer::create_cron(*WFCron::parse("0 0 1 1 *"), {}, nullptr, noting("cron"))};
  for (SubTask* timer : timers) {
    all.add_series(tasks_.branch(timer));
  }
}

void RequestKinds::add_waiting(ParallelWork& all) {
  SubTask* const waiting[] = {
      WFTaskFactory::create_counter_task(1, tasks_.noting<WFCounterTask>("counter")),
      WFTaskFactory::create_counter_task("name", 1, tasks_.noting<WFCounterTask>("named counter")),
      WFTaskFactory::create_mailbox_task(tasks_.noting<WFMailboxTask>("mailbox")),
      WFTaskFactory::create_mailbox_task("name", tasks_.noting<WFMailboxTask>("named mailbox")),
      WFTaskFactory::create_selector_task(2, tasks_.noting<WFSelectorTask>("selector"))};
  for (SubTask* task : waiting) {
    all.add_series(tasks_.branch(task));
  }
  const auto add = [&](const std::string& name, const auto& create) {
    all.add_series(tasks_.branch(create(tasks_.dropped(name)), name));
  };
  add("conditional", [](SubTask* task) { return WFTaskFactory::create_conditional(task); });
  add("named conditional",
      [](SubTask* task) { return WFTaskFactory::create_conditional("name", task); });
  add("guard", [](SubTask* task) { return WFTaskFactory::create_guard("guard", task); });
  add("resource", [this](SubTask* task) { return pool_.get(task); });
  add("message", [this](SubTask* task) { return messages_.get(task); });
}

void RequestKinds::add_computations(ParallelWork& all) {
  using Squares = WFThreadTaskFactory<int, int>;
  WFGoTask* const runs = WFTaskFactory::create_go_task("runs", [this] {
    running_.add();
    EXPECT_TRUE(eventually([] { return WFScope::current().error() != 0; }));
    function_error_ = WFScope::current().error();
    EXPECT_TRUE(function_may_end_.wait_for(1));
  });
  runs->set_callback(tasks_.noting<WFGoTask>("function that runs", KindEnd::kRuns));
  WFGoTask* const waits = WFTaskFactory::create_go_task("waits", [this] {
    WFFacilities::WaitGroup never(1);
    running_.add();
    never.wait();
    wait_error_ = WFScope::current().error();
    EXPECT_TRUE(function_may_end_.wait_for(1));
  });
  waits->set_callback(tasks_.noting<WFGoTask>("function that waits", KindEnd::kRuns));
  WFGoTask* const queued = WFTaskFactory::create_go_task(
      &queue_, &executor_, [] { ADD_FAILURE() << "the function of a queued task has run"; });
  queued->set_callback(tasks_.noting<WFGoTask>("queued go task"));
  SubTask* const computations[] = {
      runs, waits, queued,
      Squares::create_thread_task(
          &queue_, &executor_,
          [](const int*, int*) { ADD_FAILURE() << "the routine of a queued task has run"; },
          tasks_.noting<WFThreadTask<int, int>>("queued thread task")),
      WFTaskFactory::create_pread_task(dir_.path("leased"), buffer_, 4, 0,
                                       tasks_.noting<WFFileIOTask>("file"))};
  for (SubTask* task : computations) {
    all.add_series(tasks_.branch(task));
  }
}

void RequestKinds::add_requests(ParallelWork& all) {
  using Datagrams = WFNetworkTaskFactory<protocol::TLVRequest, protocol::TLVResponse>;
  const auto add = [&](const std::string& url, const char* name) {
    all.add_series(
        tasks_.branch(WFTaskFactory::create_http_task(url, 0, 2, tasks_.noting<WFHttpTask>(name))));
  };
  const auto to = [](const workflow::UniqueFd& listener) {
    return "127.0.0.1:" + std::to_string(test_support::port_of(listener.get())) + "/";
  };
  add("http://" + to(silent_), "client that waits for an answer");
  add("http://" + to(silent_), "client that waits for a connection");
  add("https://" + to(silent_tls_), "client that shakes hands");
  add("http://" + to(full_), "client that connects");
  add("http://silent.test/", "client that looks up a host");
  all.add_series(tasks_.branch(WFHttpChunkedClient::create_chunked_task(
      "http://" + to(silent_chunks_), 0, nullptr,
      tasks_.noting<WFHttpChunkedTask>("chunked client"))));
  all.add_series(tasks_.branch(Datagrams::create_client_task(
      TT_UDP, "127.0.0.1", silent_udp_.port(), 2,
      tasks_.noting<WFNetworkTask<protocol::TLVRequest, protocol::TLVResponse>>(
          "client of datagrams"))));
}

void RequestKinds::add_structures(ParallelWork& all) {
  const auto inside = [this](const char* name) {
    return WFTaskFactory::create_counter_task(1, tasks_.noting<WFCounterTask>(name));
  };
  const auto own = [this](const char* name) {
    tasks_.noting<WFCounterTask>(name, KindEnd::kOwn);
    return [this, name](const auto*) { tasks_.note(name, WFT_STATE_SUCCESS, 0); };
  };
  WFGraphTask* const graph =
      WFTaskFactory::create_graph_task(tasks_.noting<WFGraphTask>("graph", KindEnd::kOwn));
  WFGraphNode& first = graph->create_graph_node(inside("first in a graph"));
  WFGraphNode& second = graph->create_graph_node(inside("second in a graph"));
  first.precede(second);
  ParallelWork* const parallel = Workflow::create_parallel_work(own("parallel"));
  parallel->add_series(tasks_.branch(inside("in a parallel")));
  WFCounterTask* const made_later = inside("in a dynamic task");
  SubTask* const structures[] = {
      WFTaskFactory::create_module_task(inside("in a module"), own("module")),
      graph,
      parallel,
      WFTaskFactory::create_dynamic_task([made_later](WFDynamicTask*) { return made_later; }),
      WFTaskFactory::create_repeater_task(
          [](WFRepeaterTask*) { return WFTaskFactory::create_timer_task(3600, 0, nullptr); },
          tasks_.noting<WFRepeaterTask>("repeater")),
      WFTaskFactory::create_scope_task(inside("in a scope"), tasks_.noting<WFScopeTask>("scope")),
      with_deadline(inside("in a deadline"), hours(1),
                    tasks_.noting<WFDeadlineTask>("nested deadline"))};
  for (SubTask* task : structures) {
    all.add_series(tasks_.branch(task));
  }
}

// Ends both requests for the reason of the case.
void RequestKinds::end(TestServer& server, std::vector<RawClient>& clients) {
  switch (GetParam()) {
    case Reason::kClientLeaves:
      clients.clear();
      break;
    case Reason::kBoundedStop:
      EXPECT_EQ(server->stop(0, WF_STOP_FINISH).cut_short, 2U);
      break;
    case Reason::kCancel:
      EXPECT_TRUE(scopes_[0].cancel(EBUSY));
      EXPECT_TRUE(scopes_[1].cancel(EBUSY));
      break;
    default:
      // Only now, so that everything has begun to wait.
      EXPECT_TRUE(scopes_[0].set_deadline(milliseconds(1)));
      EXPECT_TRUE(scopes_[1].set_deadline(milliseconds(1)));
  }
}

}  // namespace

TEST_P(RequestKinds, AllEnd) {
  ASSERT_NO_FATAL_FAILURE(occupy());
  TestServer server(
      [this](WFHttpTask* task) {
        if (task->get_req()->get_request_uri() == std::string("/streams")) {
          begin_streams(task);
        } else {
          begin(task);
        }
      },
      patient_params());  // a stop must not end by force what the scope forgot
  std::vector<RawClient> clients;
  clients.push_back(server.client());
  ASSERT_TRUE(clients[0].send(get("/all")));
  ASSERT_TRUE(dispatched_.wait_for(1));
  clients.emplace_back(server.port(), 4096);
  ASSERT_TRUE(clients[1].send(get("/streams")));
  ASSERT_TRUE(dispatched_.wait_for(2));
  ASSERT_TRUE(running_.wait_for(2));
  ASSERT_TRUE(names_.wait_for_questions("silent.test", 1));
  EXPECT_EQ(scopes_[0].error(), 0);
  EXPECT_EQ(scopes_[1].error(), 0);

  const int error = error_of(GetParam());
  {
    const test_support::Background ending([&] { end(server, clients); });
    // The two functions wait for this test, and the four tasks that come after all for them.
    EXPECT_TRUE(tasks_.all_but(error == ETIMEDOUT ? 0 : 2 + 4));
    EXPECT_TRUE(eventually([&] { return function_error_ == error && wait_error_ == error; }));
    function_may_end_.add();
    EXPECT_TRUE(tasks_.all_but(0));
    tasks_.expect_all();
    if (GetParam() == Reason::kBoundedStop) {
      clients.clear();  // it need not linger for them
    }
  }
  EXPECT_EQ(scopes_[0].error(), error);
  // All that the second request waits for belongs to its stream, which ends when the connection is
  // lost. If that is the reason, the request may have ended before its scope would be cancelled.
  const bool may_end_first = GetParam() == Reason::kClientLeaves && scopes_[1].error() == 0;
  EXPECT_TRUE(may_end_first || scopes_[1].error() == error) << scopes_[1].error();
  EXPECT_EQ(WFTimer::count("name"), 0U);
  EXPECT_TRUE(series_ended_.wait_for(2));
  give_back();
}

INSTANTIATE_TEST_SUITE_P(, RequestKinds,
                         testing::Values(Reason::kClientLeaves, Reason::kRequestDeadline,
                                         Reason::kBoundedStop, Reason::kCancel,
                                         Reason::kDeadlineAround),
                         reason_name);

}  // namespace server_test

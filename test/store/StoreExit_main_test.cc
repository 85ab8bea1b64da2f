#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "StoreKit.h"
#include "support/Eventually.h"
#include "support/ExitKit.h"
#include "support/InChild.h"
#include "support/Loopback.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Tally.h"
#include "util/Sanitizers.h"
#include "util/UniqueFd.h"
#include "workflow/Executor.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// What becomes of a store, its runs and its requests when the process ends or forks.

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::Tally;

// Never destroyed, as in programs that end by exit().
WFTimerStore& left_open() {
  const std::string url = exit_kit::variable("STORE_EXIT_URL");
  static WFTimerStore* const store = WFTimerStore::open(url.empty() ? "memory:left" : url);
  return *store;
}

std::string how(const WFStoreTask* task) {
  const int error = task->get_error();
  return task->get_state() == WFT_STATE_ABORTED ? "aborted"
         : error == ESHUTDOWN                   ? "refused"
         : error == ECHILD                      ? "refused in the child"
         : task->result().ok()                  ? "carried out"
                                                : "error " + std::to_string(error);
}

void signal_server(const std::string& url, int number) {
  const std::string about = redis_test::info(url, "server");
  const std::string field = "process_id:";
  ::kill(std::stoi(about.substr(about.find(field) + field.size())), number);
}

// Scenarios --------------------------------------------------------------------------------------

void timers_wait() {
  WFTimerStore& store = left_open();
  store.handle("kind", [](WFStoredTimer*) { exit_kit::say("ran"); });
  store.schedule({"a", hours(1), "kind"});
  exit_kit::begin_exit([] { exit_kit::say("stopped"); });
}

void a_run_waits() {
  static Tally& begun = *new Tally;
  WFTimerStore& store = left_open();
  store.handle("kind", [](WFStoredTimer* timer) {
    *series_of(timer) << WFTimer::create(hours(1), [](WFTimerTask* task) {
      exit_kit::say(task->get_state() == WFT_STATE_ABORTED ? "aborted" : "not aborted");
    });
    begun.add();
  });
  store.schedule({"a", seconds(0), "kind"});
  begun.wait_for(1);
  const std::string server = exit_kit::variable("STORE_EXIT_STOPS");
  if (!server.empty()) {
    signal_server(server, SIGSTOP);
  }
  const std::string forgetful = exit_kit::variable("STORE_EXIT_FORGETS");
  if (!forgetful.empty()) {
    redis_test::run(forgetful, {"SCRIPT", "FLUSH"});
  }
  exit_kit::begin_exit([&store] {
    const WFTimerStoreStats stats = store.stats();
    exit_kit::say(std::to_string(stats.running) + " running, " + std::to_string(stats.retried) +
                  " retried, " + std::to_string(stats.acknowledged) + " acknowledged");
  });
}

// A timer that waits ends when the library stops.
void add_at_stop(Tally& stops) {
  WFTaskFactory::create_timer_task(hours(1), [&stops](WFTimerTask*) { stops.add(); })->start();
}

// The handler goes on for longer than the lease, while the library waits for it.
void a_run_outlasts_its_lease() {
  static Tally& begun = *new Tally;
  static Tally& stops = *new Tally;
  WFStoreOptions options;
  options.lease = seconds(4);
  static WFTimerStore& store = *WFTimerStore::open("memory:left", options);
  store.handle("kind", [](WFStoredTimer*) {
    begun.add();
    stops.wait_for(1);
    std::this_thread::sleep_for(milliseconds(4500));
  });
  store.schedule({"a", seconds(0), "kind"});
  begun.wait_for(1);
  add_at_stop(stops);
  exit_kit::begin_exit([] {
    const WFTimerStoreStats stats = store.stats();
    exit_kit::say(std::to_string(stats.retried) + " retried, " + std::to_string(stats.lost) +
                  " lost");
  });
}

// The library waits for the function, and the function for the store, of which nothing works.
void a_function_asks_a_failed_store() {
  static Tally& stops = *new Tally;
  static WFTimerStore& store = left_open();
  const std::string server = exit_kit::variable("STORE_EXIT_SERVER");
  signal_server(server, SIGKILL);
  test_support::eventually([] { return !store.count("").ok(); });
  static Executor& executor = *new Executor;  // it begins later than the store
  static ExecQueue& queue = *new ExecQueue;
  executor.init(1);
  queue.init();
  static Tally& begun = *new Tally;
  WFTaskFactory::create_go_task(&queue, &executor, [] {
    begun.add();
    stops.wait_for(1);
    exit_kit::say(store.schedule({"a", hours(1), "kind"}).ok() ? "stored" : "refused");
  })->start();
  begun.wait_for(1);
  add_at_stop(stops);
  exit_kit::begin_exit([] { exit_kit::say("stopped"); });
}

// A server accepts the connection and never says anything, and nothing limits that.
void opens_where_nobody_answers() {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.response_timeout = -1;
  WORKFLOW_library_init(&settings);
  const workflow::UniqueFd listener = test_support::listen_on_loopback();
  const std::string url =
      "redis://127.0.0.1:" + std::to_string(test_support::port_of(listener.get())) + "/0";
  std::thread([url] { WFTimerStore::open(url); }).detach();
  const int connection = ::accept(listener.get(), nullptr, nullptr);  // open until the end
  char byte = 0;
  EXPECT_EQ(::recv(connection, &byte, 1, 0), 1);  // of the first PING
  exit_kit::begin_exit([] { exit_kit::say("stopped"); });
}

void requests_are_under_way() {
  static std::atomic<int> answered{0};
  constexpr int kRequests = 2000;
  WFTimerStore& store = left_open();
  for (int i = 0; i < kRequests; i++) {
    store
        .create_schedule_task({"a", hours(1), "kind"},
                              [](WFStoreTask* task) {
                                const std::string ended = how(task);
                                if (ended == "carried out" || ended == "aborted") {
                                  answered++;
                                } else {
                                  exit_kit::say(ended);
                                }
                              })
        ->start();
  }
  exit_kit::begin_exit([] { exit_kit::say(std::to_string(answered) + " answered"); });
}

void exits_in_a_handler() {
  WFTimerStore& store = left_open();
  store.handle("kind", [](WFStoredTimer*) {
    exit_kit::begin_exit([] { exit_kit::say("stopped"); });
    std::exit(0);
  });
  store.schedule({"a", seconds(0), "kind"});
  exit_kit::wait_for_exit();
}

// Against the rules. The store is not closed, but goes on.
void destroys_the_store_in_a_handler() {
  static Tally& ran = *new Tally;
  static std::atomic<WFTimerStore*> store{WFTimerStore::open("memory:destroyed")};
  store.load()->schedule({"a", seconds(0), "kind"});
  store.load()->schedule({"b", milliseconds(20), "kind"});
  store.load()->handle("kind", [](WFStoredTimer*) {
    delete store.exchange(nullptr);
    ran.add();
  });
  ran.wait_for(2);
  exit_kit::begin_exit([] { exit_kit::say("stopped"); });
}

void exits_in_a_callback() {
  WFTimerStore& store = left_open();
  store
      .create_schedule_task({"a", hours(1), "kind"},
                            [](WFStoreTask* task) {
                              exit_kit::say(how(task));
                              exit_kit::begin_exit([] { exit_kit::say("stopped"); });
                              std::exit(0);
                            })
      ->start();
  exit_kit::wait_for_exit();
}

// The report of a missed run belongs to no series.
void exits_in_a_report() {
  WFTimerStore& store = left_open();
  WFStoreTimer timer = {"late", seconds(0), "kind"};
  timer.skip_if_later = seconds(0);
  store.schedule(timer);
  WFStoreHandlerOptions options;
  options.on_missed = [&store](const WFStoreInfo&) {
    exit_kit::say(!store.close() && errno == EDEADLK ? "does not wait for itself" : "waits");
    exit_kit::begin_exit([] { exit_kit::say("stopped"); });
    std::exit(0);
  };
  store.handle(
      "kind", [](WFStoredTimer*) { exit_kit::say("ran"); }, options);
  exit_kit::wait_for_exit();
}

// A store that is destroyed after the library has stopped, and used before that.
struct Late {
  ~Late() {
    if (store) {
      exit_kit::say(how_it_ends());
      store.reset();
      exit_kit::say("destroyed");
    }
  }
  std::string how_it_ends() const {
    std::string ended;
    store->create_count_task("", [&ended](WFStoreTask* task) { ended = how(task); })->start();
    return ended;
  }
  std::unique_ptr<WFTimerStore> store;
};

void destroyed_after_the_stop() {
  static Late late;
  late.store.reset(WFTimerStore::open("memory:late"));
  late.store->schedule({"a", hours(1), "kind"});
}

void forks() {
  static std::unique_ptr<WFTimerStore> store(WFTimerStore::open("memory:forked"));
  store->schedule({"a", hours(1), "kind"});
  const int ended = test_support::in_child([] {
    exit_kit::say(store->schedule({"b", hours(1), "kind"}).error == ECHILD ? "refused" : "taken");
    errno = 0;
    exit_kit::say(store->handle("kind", [](WFStoredTimer*) {}) == -1 && errno == ECHILD
                      ? "no handler"
                      : "a handler");
    exit_kit::say(store->close() ? "closed" : "not closed");
    store.reset();
    // The child may have stores of its own.
    const std::unique_ptr<WFTimerStore> own(WFTimerStore::open("memory:own"));
    static Tally& ran = *new Tally;
    own->handle("kind", [](WFStoredTimer*) { ran.add(); });
    exit_kit::say(own->schedule({"c", milliseconds(1), "kind"}).ok() && ran.wait_for(1)
                      ? "runs its own"
                      : "runs none");
    own->close();
    return 7;
  });
  exit_kit::say("child ended with " + std::to_string(ended));
  exit_kit::say("parent has " + std::to_string(store->count("").count));
  store.reset();
}

// The connections to the server, by their ids there.
std::set<std::string> connections_to(const std::string& url) {
  std::istringstream list(redis_test::run(url, {"CLIENT", "LIST"}).value.string_value());
  std::set<std::string> ids;
  for (std::string line; std::getline(list, line);) {
    ids.insert(line.substr(0, line.find(' ')));
  }
  return ids;
}

// A child inherits the sockets of the parent. It says nothing on them, and its end leaves them
// open.
void forks_with_a_redis() {
  const std::string url = exit_kit::variable("STORE_EXIT_URL");
  const std::string server = exit_kit::variable("STORE_EXIT_SERVER");
  static Tally& ran = *new Tally;
  static std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url));
  store->handle("kind", [](WFStoredTimer*) { ran.add(); });
  store->schedule({"a", hours(1), "kind"});
  test_support::eventually([&] {
    return redis_test::run(server, {"PUBSUB", "NUMSUB", "app:news"}).value[1].int_value() == 1;
  });
  const std::set<std::string> before = connections_to(server);
  const int ended = test_support::in_child([] {
    exit_kit::say(store->schedule({"b", hours(1), "kind"}).error == ECHILD ? "refused" : "taken");
    exit_kit::say(store->cancel("a").error == ECHILD ? "refused" : "taken");
    std::string asynchronous;
    Tally answered;
    store
        ->create_count_task("",
                            [&](WFStoreTask* task) {
                              asynchronous = how(task);
                              answered.add();
                            })
        ->start();
    exit_kit::say(answered.wait_for(1) ? asynchronous : "no answer");
    exit_kit::say(store->close() ? "closed" : "not closed");
    store.reset();
    return 7;
  });
  exit_kit::say("child ended with " + std::to_string(ended));
  exit_kit::say(store->schedule({"b", seconds(0), "kind"}).ok() && ran.wait_for(1) ? "runs"
                                                                                   : "runs none");
  exit_kit::say("parent has " + std::to_string(store->count("a").count));
  const std::set<std::string> after = connections_to(server);
  const bool has_all = std::includes(after.begin(), after.end(), before.begin(), before.end());
  exit_kit::say(has_all && before.size() >= 3 ? "by the same connections" : "by others");
  store.reset();
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"timers wait", timers_wait},
    {"a run waits", a_run_waits},
    {"a run outlasts its lease", a_run_outlasts_its_lease},
    {"a function asks a failed store", a_function_asks_a_failed_store},
    {"opens where nobody answers", opens_where_nobody_answers},
    {"requests are under way", requests_are_under_way},
    {"exits in a handler", exits_in_a_handler},
    {"destroys the store in a handler", destroys_the_store_in_a_handler},
    {"exits in a callback", exits_in_a_callback},
    {"exits in a report", exits_in_a_report},
    {"destroyed after the stop", destroyed_after_the_stop},
    {"forks", forks},
    {"forks with a redis", forks_with_a_redis},
};

// The variable that names a store in that server.
std::string store_in(const redis_test::RedisServer& server) {
  return "STORE_EXIT_URL=" + server.url() + "&namespace=app&shards=2";
}

// Tests ------------------------------------------------------------------------------------------

TEST(StoreExit, TimersThatWaitHoldNothingUp) {
  EXPECT_EQ(exit_kit::play_promptly("timers wait"), "stopped\n");
}

TEST(StoreExit, ARunIsAbortedAndWillRunAgain) {
  EXPECT_EQ(exit_kit::play_promptly("a run waits"),
            "aborted\n0 running, 1 retried, 0 acknowledged\n");
}

TEST(StoreExit, LeasesAreExtendedMeanwhile) {
  EXPECT_EQ(exit_kit::play_promptly("a run outlasts its lease", {}, seconds(20)),
            "1 retried, 0 lost\n");
}

TEST(StoreExit, AnOpeningThatNobodyAnswersHoldsItUpForAMoment) {
  EXPECT_EQ(exit_kit::play_promptly("opens where nobody answers"), "stopped\n");
}

TEST(StoreExit, AStoreThatHasFailedAnswersMeanwhile) {
  const redis_test::RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("a function asks a failed store",
                                    {store_in(server), "STORE_EXIT_SERVER=" + server.url()}),
            "refused\nstopped\n");
}

// The connection to the server goes on until the store has told it how the runs have ended.
TEST(StoreExit, ARedisHearsOfTheRunsThatTheExitHasEnded) {
  redis_test::RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("a run waits", {store_in(server)}),
            "aborted\n0 running, 1 retried, 0 acknowledged\n");
}

// So the store sends it the script once more, after the static objects of this process have gone.
TEST(StoreExit, ARedisThatHasForgottenTheScriptsHearsOfThemToo) {
  redis_test::RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("a run waits",
                                    {store_in(server), "STORE_EXIT_FORGETS=" + server.url(),
                                     "MALLOC_PERTURB_=165"}),  // fills what is freed
            "aborted\n0 running, 1 retried, 0 acknowledged\n");
}

TEST(StoreExit, ARedisAnswersEachRequest) {
  redis_test::RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("requests are under way", {store_in(server)}, seconds(10)),
            "2000 answered\n");
}

// The exit waits some 3 s for it.
TEST(StoreExit, ASilentRedisHoldsItUpForAMoment) {
  const redis_test::RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("a run waits",
                                    {store_in(server), "STORE_EXIT_STOPS=" + server.url()}),
            "aborted\n0 running, 0 retried, 0 acknowledged\n");
  server.signal(SIGCONT);
}

// This stop has work to do: the store carries out what it was asked for, and 2,000 callbacks run.
// Where ten others want each processor it took 2.5 s. It must not wait for a timer, nor for the end
// of a lease.
TEST(StoreExit, EachRequestIsAnswered) {
  for (int i = 0; i < exit_kit::times(5); i++) {
    EXPECT_EQ(exit_kit::play_promptly("requests are under way", {}, seconds(10)),
              "2000 answered\n");
  }
}

TEST(StoreExit, AHandlerMayEndTheProcess) {
  EXPECT_EQ(exit_kit::play_promptly("exits in a handler"), "stopped\n");
}

TEST(StoreExit, AHandlerThatDestroysItsStoreLeavesItToTheExit) {
  EXPECT_EQ(exit_kit::play_promptly("destroys the store in a handler"), "stopped\n");
}

TEST(StoreExit, ACallbackMayEndTheProcess) {
  EXPECT_EQ(exit_kit::play_promptly("exits in a callback"), "carried out\nstopped\n");
}

TEST(StoreExit, AReportOfAMissedRunMayEndTheProcess) {
  EXPECT_EQ(exit_kit::play_promptly("exits in a report"), "does not wait for itself\nstopped\n");
}

TEST(StoreExit, AStoreMayOutliveTheLibrary) {
  EXPECT_EQ(exit_kit::play("destroyed after the stop"), "refused\ndestroyed\n");
}

// ThreadSanitizer ends a process that starts threads after a fork with threads.
#if !defined(WORKFLOW_THREAD_SANITIZER)
TEST(StoreExit, AChildHasNoStore) {
  EXPECT_EQ(exit_kit::play("forks"),
            "refused\nno handler\nclosed\nruns its own\nchild ended with 7\nparent has 1\n");
}

TEST(StoreExit, AStoreInARedisGoesOnAfterAFork) {
  redis_test::RedisServer server;
  EXPECT_EQ(
      exit_kit::play("forks with a redis", {"STORE_EXIT_SERVER=" + server.url(), store_in(server)}),
      "refused\nrefused\nrefused in the child\nclosed\nchild ended with 7\nruns\nparent has 1\n"
      "by the same connections\n");
}
#endif

}  // namespace

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

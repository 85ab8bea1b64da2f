// Shows: timers that several worker processes share. Orders expire unless they are paid in time.
// Any worker may be killed at any moment: the others finish what it has begun. Orders: the effect
// of a run, made so that a second run changes nothing.
//
// Try, in four terminals:
//   mkdir expired
//   tutorial-23-order_expiry sqlite:orders.db work expired       three times; Enter stops one
//   tutorial-23-order_expiry sqlite:orders.db place 20 30        20 orders that have 30 s each
//   tutorial-23-order_expiry sqlite:orders.db pay order-7
//   kill -9 a worker, and look at what the others print; ls expired
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "Orders.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

int usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s URL work FOLDER [milliseconds for each order]\n"
               "       %s URL place COUNT SECONDS\n"
               "       %s URL pay ORDER\n",
               program, program, program);
  return 2;
}

void say(const WFStoredTimer* timer, const char* what) {
  std::printf("%s: %s, attempt %u\n", timer->name().c_str(), what, timer->attempt());
  std::fflush(stdout);
}

// Runs timers until somebody presses Enter. `pause` stands for what a real worker waits for.
void work(WFTimerStore& store, const Orders& orders, milliseconds pause) {
  WFStoreHandlerOptions options;
  options.max_running = 8;
  const auto expire = [&orders, pause](WFStoredTimer* timer) {
    say(timer, "begins");
    auto end = [&orders, timer](WFTimerTask* waited) {
      // Something else than success: the order was paid meanwhile, or this worker has lost it.
      if (waited->get_state() != WFT_STATE_SUCCESS) {
        say(timer, "stops");
        timer->retry();  // it is not done: another run follows, unless the timer was cancelled
      } else {
        say(timer, orders.expire(timer->name()) ? "expired" : "had expired");
      }
    };
    // The run is acknowledged when its series has ended: after this task.
    series_of(timer)->push_back(WFTaskFactory::create_timer_task(pause, std::move(end)));
  };
  store.handle("expire", expire, options);
  std::printf("working\n");
  std::fflush(stdout);
  std::getchar();
  store.close();
}

int place(WFTimerStore& store, int count, seconds time_to_pay) {
  for (int i = 1; i <= count; i++) {
    WFStoreTimer timer;
    timer.name = "order-" + std::to_string(i);
    timer.due = time_to_pay;
    timer.kind = "expire";
    timer.policy = WF_TIMER_KEEP;  // an order that was placed before has its time already
    const WFStoreResult result = store.schedule(timer);
    if (!result.ok() && result.error != EEXIST) {
      std::printf("%s: %s\n", timer.name.c_str(), result.message.c_str());
      return 1;
    }
  }
  std::printf("%d orders\n", count);
  return 0;
}

int pay(WFTimerStore& store, const std::string& order) {
  WFStoreResult result = store.cancel(order);
  // No answer does not mean that nothing was done. The id of the request finds out.
  if (!result.ok() && result.verdict() == WFStoreVerdict::kInDoubt) {
    result = store.ask(result.request);
  }
  if (!result.ok()) {
    std::printf("%s: %s\n", order.c_str(), result.message.c_str());
    return 1;
  }
  const char* answer = "paid in time";
  switch (result.verdict()) {
    case WFStoreVerdict::kWon:
      break;
    case WFStoreVerdict::kRunning:
    case WFStoreVerdict::kWonAfter:
      answer = "too late, perhaps: a worker has begun to expire it";
      break;
    case WFStoreVerdict::kDone:
      answer = result.answers[0].outcome == WFStoreOutcome::kCancelled ? "paid before"
                                                                       : "too late: it has expired";
      break;
    default:
      answer = "no such order";
  }
  std::printf("%s: %s\n", order.c_str(), answer);
  return result.verdict() == WFStoreVerdict::kWon ? 0 : 1;
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::string role = argc > 2 ? argv[2] : "";
  const bool works = role == "work" && (argc == 4 || argc == 5);
  const bool places = role == "place" && argc == 5;
  const bool pays = role == "pay" && argc == 4;
  if (!works && !places && !pays) {
    return usage(argv[0]);
  }
  WFStoreOptions options;
  options.lease = seconds(5);  // so long after a worker has died, others take over its timers
  std::string message;
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(argv[1], options, &message));
  if (!store) {
    std::fprintf(stderr, "cannot open the store: %s\n", message.c_str());
    return 1;
  }
  if (works) {
    work(*store, Orders(argv[3]), milliseconds(argc == 5 ? std::atol(argv[4]) : 200));
    return 0;
  }
  return places ? place(*store, std::atoi(argv[3]), seconds(std::atoi(argv[4])))
                : pay(*store, argv[3]);
}

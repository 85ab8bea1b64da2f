#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "store/SqliteChild.h"
#include "support/RedisServer.h"
#include "support/ShiftedClocks.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFTimer.h"
#include "workflow/WFTimerStore.h"

// Two machines on one Redis whose clocks are wrong by ten minutes, one fast and one slow. Each is a
// child of the test, with shifted clocks; the server has the right time.

using namespace test_support;

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr int kTimers = 20;

std::string us_text(std::chrono::system_clock::time_point time) {
  return std::to_string(std::chrono::duration_cast<microseconds>(time.time_since_epoch()).count());
}

// The right time, as the server has it.
int64_t true_us() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + (now.tv_nsec - shifted_clocks::wall_shift_ns) / 1000;
}

// Runs the timers of one machine and stores those of the other, until it is killed.
void be_a_machine() {
  shifted_clocks::wall_shift_ns = env_number("SKEW_SECONDS", 0) * 1'000'000'000;
  const std::string own = variable("SKEW_OWN");
  const std::string other = variable("SKEW_OTHER");
  WFStoreOptions options;
  options.owner = own;
  std::string message;
  const std::unique_ptr<WFTimerStore> store(
      WFTimerStore::open(variable("SKEW_URL"), options, &message));
  if (!store) {
    say("error " + message);
    return;
  }
  say("clock " + us_text(WFTimer::wall_now()) + ' ' + us_text(store->now()) + ' ' +
      std::to_string(true_us()));
  store->handle(own, [](WFStoredTimer* timer) {
    say("began " + timer->name() + ' ' + us_text(timer->due()) + ' ' + std::to_string(true_us()) +
        ' ' + std::to_string(timer->lease_left().count()));
  });
  for (int i = 0; i < kTimers; i++) {
    // By a delay, and by a date of the store's clock.
    WFStoreTimer timer = {other + std::to_string(i), milliseconds(20 * i), other};
    if (i % 2 == 0) {
      timer.due = store->now() + milliseconds(20 * i);
    }
    const WFStoreResult result = store->schedule(timer);
    say("stored " + timer.name + ' ' + std::to_string(result.ok() ? 1 : 0));
  }
  // One that a fast clock would take for due.
  store->schedule({other + " later", minutes(5), other});
  wait_for_exit();
}

struct Begun {
  int64_t due_us = 0;
  int64_t began_us = 0;
  int64_t lease_left_us = 0;
};

class Machine {
 public:
  Machine(const std::string& url, const std::string& own, const std::string& other, int64_t skew_s)
      : skew_us_(skew_s * 1'000'000),
        child_({"SKEW_URL=" + url, "SKEW_OWN=" + own, "SKEW_OTHER=" + other,
                "SKEW_SECONDS=" + std::to_string(skew_s)}) {}

  // Reads what it says until it has stored and begun all of its timers.
  void await_all() {
    while (stored_ < kTimers || begun_.size() < kTimers) {
      const std::optional<std::string> line = child_.line();
      ASSERT_TRUE(line) << stored_ << " stored, " << begun_.size() << " begun";
      std::istringstream in(*line);
      std::string what;
      std::string name;
      in >> what;
      if (what == "clock") {
        expect_skew(in);
      } else if (what == "stored") {
        int ok = 0;
        in >> name >> ok;
        stored_ += ok;
        ASSERT_EQ(ok, 1);
      } else {
        ASSERT_EQ(what, "began") << *line;
        Begun begun;
        in >> name >> begun.due_us >> begun.began_us >> begun.lease_left_us;
        EXPECT_TRUE(begun_.emplace(name, begun).second) << name << " began twice";
      }
    }
  }

  const std::map<std::string, Begun>& begun() const { return begun_; }

 private:
  static constexpr int64_t kMinuteUs = 60'000'000;

  void expect_skew(std::istringstream& in) const {
    int64_t own_us = 0;
    int64_t store_us = 0;
    int64_t server_us = 0;
    in >> own_us >> store_us >> server_us;
    EXPECT_NEAR(static_cast<double>(own_us - server_us), static_cast<double>(skew_us_), kMinuteUs);
    EXPECT_NEAR(static_cast<double>(store_us), static_cast<double>(server_us), kMinuteUs);
  }

  const int64_t skew_us_;
  SqliteChild child_;
  int stored_ = 0;
  std::map<std::string, Begun> begun_;
};

TEST(StoreSkew, MachinesTenMinutesApartStartNothingEarlyAndDropNothing) {
  const redis_test::RedisServer server;
  const std::string url = server.url() + "&namespace=skew&shards=2";
  Machine fast(url, "fast", "slow", 600);
  Machine slow(url, "slow", "fast", -600);
  for (Machine* const machine : {&fast, &slow}) {
    machine->await_all();
    for (const auto& [name, begun] : machine->begun()) {
      EXPECT_EQ(name.find("later"), std::string::npos);
      EXPECT_GE(begun.began_us, begun.due_us) << name;
      // Far less than what the clocks are wrong by.
      EXPECT_LT(begun.began_us, begun.due_us + 120'000'000) << name;
      EXPECT_GT(begun.lease_left_us, 0) << name;
      EXPECT_LE(begun.lease_left_us, 31'000'000) << name;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (!variable("SKEW_OWN").empty()) {
    be_a_machine();
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "store/FaultVfs.h"
#include "store/FaultyBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/SqliteKit.h"
#include "util/UniqueFd.h"

// What becomes of the runs of a store that one process owns when the store fails.

namespace {

using std::chrono::hours;
using std::chrono::seconds;
using store_test::FaultyBackend;
using store_test::Gate;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;

// Whether another process could not become the owner. Asks by a lock of an open file, which differs
// from the locks of the process. The file stays open because closing it would remove those locks.
class OwnerLock {
 public:
  explicit OwnerLock(const std::string& path)
      : file_(::open((path + "-queue").c_str(), O_RDWR | O_CLOEXEC)) {}
  bool is_held() const {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = 1;
    lock.l_len = 1;
    return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  }

 private:
  const workflow::UniqueFd file_;
};

class OwnedStore : public testing::Test {
 protected:
  // Opens the store. `wrap` is called with its backend.
  template <class WRAP>
  StorePtr open(const WRAP& wrap) {
    WFStoreOptions options;
    options.lease = hours(1);
    workflow::StoreFailure failure;
    const auto make = [&](const workflow::StoreBackendOptions& backend_options,
                          workflow::StoreFailure* why) {
      workflow::SqliteSettings settings;
      settings.base_vfs = vfs_.name();
      return wrap(test_support::open_layout(workflow::SqliteLayout::kOwned, path_, backend_options,
                                            settings, &why->message, &why->error));
    };
    StorePtr store(workflow::StoreOpener::open(options, make, &failure));
    EXPECT_TRUE(store) << failure.message;
    return store;
  }

  // Begins a run of the timer "tea" that lasts until the gate is opened.
  void begin_run(WFTimerStore& store) {
    store.handle("kind", runs_.handler(store, [this](WFStoredTimer* timer) {
      series_of(timer)->push_back(gate_.wait());
    }));
    ASSERT_TRUE(store.schedule({"tea", seconds(0), "kind"}).ok());
    ASSERT_TRUE(runs_.wait_for(1));
  }

  const test_support::FastDir directory_;
  const std::string path_ = directory_.path("timers");
  test_support::FaultVfs vfs_;
  SeenRuns runs_;
  Gate gate_;
};

TEST_F(OwnedStore, NobodyTakesAStoreThatOpensItsFileAgain) {
  const StorePtr store = open([](auto backend) { return backend; });
  begin_run(*store);
  const OwnerLock owner(path_);
  ASSERT_TRUE(owner.is_held());
  vfs_.set_fault([](test_support::FaultVfs::Operation operation, bool) {
    return operation == test_support::FaultVfs::kRead   ? SQLITE_IOERR_READ
           : operation == test_support::FaultVfs::kSync ? SQLITE_IOERR_FSYNC
                                                        : SQLITE_OK;
  });
  EXPECT_EQ(store->schedule({"coffee", hours(1), "kind"}).error, EIO);
  // One that stands by tries again and again, while the owner tries to open its file.
  const auto is_refused = [this, &owner] {
    std::string message;
    const std::unique_ptr<WFTimerStore> other(
        WFTimerStore::open("sqlite:" + path_ + "?layout=owned", &message));
    return !other && errno == EBUSY && owner.is_held();
  };
  bool is_refused_always = true;
  EXPECT_TRUE(eventually([&] {
    is_refused_always = is_refused_always && is_refused();
    return store->stats().errors >= 4;
  }));
  vfs_.set_fault(nullptr);
  EXPECT_TRUE(eventually([&] {
    is_refused_always = is_refused_always && is_refused();
    return store->count("tea").count == 1;
  }));
  EXPECT_TRUE(is_refused_always);
  EXPECT_TRUE(gate_.errors().empty());
  gate_.open();
  EXPECT_TRUE(eventually([&] { return store->stats().acknowledged == 1; }));
  EXPECT_EQ(gate_.errors(), std::vector<int>{0});
  EXPECT_EQ(store->stats().lost, 0U);
  EXPECT_EQ(runs_.count(), 1U);
}

TEST_F(OwnedStore, WhileItsFileIsAwayNothingBeginsAndRunsGoOn) {
  const StorePtr store = open([](auto backend) { return backend; });
  begin_run(*store);
  ASSERT_TRUE(store->schedule({"coffee", hours(1), "kind"}).ok());
  std::filesystem::rename(path_, path_ + ".away");
  EXPECT_EQ(store->schedule({"water", seconds(0), "kind"}).error, ENOENT);
  EXPECT_TRUE(eventually([&] { return store->stats().errors >= 3; }));
  EXPECT_EQ(store->reschedule("coffee", seconds(0)).error, ENOENT);
  EXPECT_EQ(runs_.count(), 1U);
  gate_.open();
  EXPECT_TRUE(gate_.wait_for_ended(1));
  EXPECT_EQ(gate_.errors(), std::vector<int>{0});
  EXPECT_EQ(store->stats().acknowledged, 0U);
  std::filesystem::rename(path_ + ".away", path_);
  EXPECT_TRUE(eventually([&] { return store->stats().acknowledged == 1; }));
  EXPECT_EQ(store->count("coffee").count, 1U);
  EXPECT_EQ(store->count("").count, 1U);
  EXPECT_EQ(store->stats().lost, 0U);
}

TEST_F(OwnedStore, RunsAreToldAtOnceThatTheirOwnerIsNoneAnyMore) {
  FaultyBackend* faulty = nullptr;
  const StorePtr store = open([&faulty](auto backend) {
    auto wrapped = std::make_unique<FaultyBackend>(std::move(backend));
    faulty = wrapped.get();
    return wrapped;
  });
  begin_run(*store);
  faulty->lose_leases();
  faulty->fail_reopen(1);
  faulty->fail_next(FaultyBackend::Fault::kRefuse);
  EXPECT_EQ(store->schedule({"coffee", hours(1), "kind"}).error, EIO);
  // The lease has most of an hour left.
  EXPECT_TRUE(gate_.wait_for_ended(1));
  EXPECT_EQ(gate_.errors(), std::vector<int>{ESTALE});
  EXPECT_EQ(store->stats().lost, 1U);
}

}  // namespace

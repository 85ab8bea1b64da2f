#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "client/DeadlineFixture.h"
#include "kernel/Runtime.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFServer.h"
#include "workflow/WFTaskFactory.h"

// Deadlines that pass while something else is under way with a request.

namespace client_test {
namespace {

// The deadline passes while a request is at none of the places where it could be found: it is being
// prepared for a connection that was kept, on the thread that has started it.
class ClientDeadlineOnTheWay : public ClientDeadline {
 protected:
  ~ClientDeadlineOnTheWay() override { server_.reset(); }  // its scripts use what is here

  void begin(Script second = nullptr) {
    const auto first = [this](Peer& peer) {
      peer.request();
      peer.reply("kept");
      close_.wait_for(1);
      ::shutdown(peer.fd(), SHUT_WR);
      requests_.add(!peer.ended());
      closed_.add();
    };
    serve(first, second);
    ASSERT_EQ(fetch(url()).body, "kept");
    WFHttpTask* task = get(url());
    task->set_prepare([this](WFHttpTask*) {
      prepared_.add();
      go_.wait_for(1);
    });
    starter_ = std::thread([this, task] { limited_ = std::make_unique<Limited>(task); });
    ASSERT_TRUE(prepared_.wait_for(1));
    pass(kLimitMs);
  }
  void expect_ends_when_it_goes() {
    go_.add();
    starter_.join();
    EXPECT_EQ(limited_->result().error, ETIMEDOUT);
    EXPECT_EQ(prepared_.count(), 1u);
  }

  std::string url() const {
    return "http://" + host_ + ":" + std::to_string(server_->port()) + "/";
  }

  std::string host_ = "127.0.0.1";
  test_support::Tally close_;
  test_support::Tally requests_;  // on the connection that was kept, after the first
  test_support::Tally prepared_;
  test_support::Tally go_;
  std::thread starter_;
  std::unique_ptr<Limited> limited_;
};

TEST_F(ClientDeadlineOnTheWay, ToTheConnectionThatIsThere) {
  begin();
  expect_ends_when_it_goes();
  close_.add();
  ASSERT_TRUE(closed_.wait_for(1));
  EXPECT_EQ(requests_.count(), 0u);
  expect_served();
}

TEST_F(ClientDeadlineOnTheWay, ToAConnectionThatHasClosed) {
  begin();
  close_.add();
  ASSERT_TRUE(closed_.wait_for(1));
  expect_ends_when_it_goes();
  EXPECT_EQ(server_->connections(), 1);
  EXPECT_EQ(requests_.count(), 0u);
  expect_served();
}

TEST_F(ClientDeadlineOnTheWay, ToTheEndOfTheQueue) {
  test_support::Tally reply;
  begin([&](Peer& peer) {
    peer.request();
    asked_.add();
    reply.wait_for(1);
    peer.reply("served");
  });
  Limited patient(get(server_->url()), -1);
  close_.add();
  ASSERT_TRUE(asked_.wait_for(1));
  expect_ends_when_it_goes();
  reply.add();
  EXPECT_EQ(patient.result().state, WFT_STATE_SUCCESS);
}

// What ended the request says nothing of them.
TEST_F(ClientDeadlineOnTheWay, LeavesTheAddressesOfTheHostKnown) {
  host_ = "kept.test";
  names_.set(host_, {.v4 = {"127.0.0.1"}});
  begin();
  expect_ends_when_it_goes();
  const size_t asked = names_.asked(host_);
  EXPECT_EQ(fetch(url()).body, "served");
  EXPECT_EQ(names_.asked(host_), asked);
  close_.add();
}

using protocol::TLVRequest;
using protocol::TLVResponse;

// A response that waits as its bytes come.
class HeldResponse : public TLVResponse {
 public:
  int append(const void* data, size_t* size) override {
    if (hold) {
      hold();
    }
    return TLVResponse::append(data, size);
  }
  using TLVResponse::append;

  std::function<void()> hold;
};

// The deadline passes while the last bytes of the response are parsed: it comes too late.
TEST(ClientDeadlineInTheParser, LeavesTheConnectionToTheNextRequest) {
  using Task = WFNetworkTask<TLVRequest, HeldResponse>;
  using Factory = WFNetworkTaskFactory<TLVRequest, HeldResponse>;
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 2;
  WORKFLOW_library_init(&settings);
  WFServer<TLVRequest, TLVResponse> server(
      [](auto* task) { task->get_resp()->set_value(*task->get_req()->get_value()); });
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const auto request = [&] {
    Task* task =
        Factory::create_client_task(TT_TCP, "127.0.0.1", test_support::port_of(server), 0, nullptr);
    task->get_req()->set_value("x");
    task->set_keep_alive(60'000);
    return task;
  };
  const auto sequence_of_next = [&] {
    long long sequence = -1;
    WFFacilities::WaitGroup group(1);
    Task* task = request();
    task->set_callback([&](Task* done) {
      sequence = done->get_state() == WFT_STATE_SUCCESS ? done->get_task_seq() : -2;
      group.done();
    });
    task->start();
    group.wait();
    return sequence;
  };
  ASSERT_EQ(sequence_of_next(), 0);

  test_support::Tally parsing, go, told, ended;
  Task* held = request();
  held->get_resp()->hold = [&] {
    parsing.add();
    go.wait_for(1);
  };
  held->set_callback([&](Task* done) {
    EXPECT_EQ(done->get_state(), WFT_STATE_SUCCESS);
    ended.add();
  });
  WFTimerTask* last =
      WFTaskFactory::create_timer_task(std::chrono::hours(1), [&](WFTimerTask*) { told.add(); });
  ParallelWork* both = Workflow::create_parallel_work(nullptr);
  both->add_series(Workflow::create_series_work(held, nullptr));
  both->add_series(Workflow::create_series_work(last, nullptr));
  WFDeadlineTask* deadline =
      with_deadline(both, std::chrono::hours(1), [&](WFDeadlineTask*) { ended.add(); });
  const WFScope scope = deadline->scope();
  workflow::Runtime& runtime = workflow::Runtime::current();
  const workflow::Poller* const parser = &runtime.own_poller();
  // The timers are another poller's, as that of the connection waits in the parser. By the real
  // clock: one that is moved by hand waits for all pollers.
  for (bool started = false; !started;) {
    std::thread([&] {
      started = &runtime.own_poller() != parser;
      if (started) {
        deadline->start();
        EXPECT_TRUE(parsing.wait_for(1));
        EXPECT_TRUE(scope.set_deadline(milliseconds(1)));
      }
    }).join();
  }
  EXPECT_TRUE(told.wait_for(1));
  // The connection learns of it in another turn, which the test cannot see.
  std::this_thread::sleep_for(milliseconds(20));
  go.add();
  EXPECT_TRUE(ended.wait_for(2));
  EXPECT_EQ(sequence_of_next(), 2);
  server.stop();
}

}  // namespace
}  // namespace client_test

// Programs written for the interface compile: names, parameters, constness and results of what it
// promises, used the way such programs use them. What does not fit does not compile.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <type_traits>

#include "support/Tally.h"
#include "workflow/Executor.h"
#include "workflow/HttpMessage.h"
#include "workflow/PackageWrapper.h"
#include "workflow/SSLWrapper.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFAlgoTaskFactory.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFOperator.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

using F = WFTaskFactory;
using std::string;

// The overload of a static function that has this very type.
template <class Type>
constexpr bool is(Type* /*function*/) {
  return true;
}
// Whether the class has a member function of that type.
template <class Class, class Type>
constexpr bool has(Type Class::* /*member*/) {
  return true;
}

static_assert(is<WFTimerTask*(time_t, long, timer_callback_t)>(&F::create_timer_task));
static_assert(
    is<WFTimerTask*(const string&, time_t, long, timer_callback_t)>(&F::create_timer_task));
static_assert(is<WFTimerTask*(timer_callback_t)>(&F::create_timer_task));
static_assert(is<WFTimerTask*(unsigned int, timer_callback_t)>(&F::create_timer_task));
static_assert(is<int(const string&)>(&F::cancel_by_name));
static_assert(is<int(const string&, size_t)>(&F::cancel_by_name));

static_assert(is<WFCounterTask*(unsigned int, counter_callback_t)>(&F::create_counter_task));
static_assert(
    is<WFCounterTask*(const string&, unsigned int, counter_callback_t)>(&F::create_counter_task));
static_assert(is<int(const string&)>(&F::count_by_name));
static_assert(is<int(const string&, unsigned int)>(&F::count_by_name));

static_assert(is<WFMailboxTask*(mailbox_callback_t)>(&F::create_mailbox_task));
static_assert(is<WFMailboxTask*(void**, mailbox_callback_t)>(&F::create_mailbox_task));
static_assert(is<WFMailboxTask*(const string&, mailbox_callback_t)>(&F::create_mailbox_task));
static_assert(
    is<WFMailboxTask*(const string&, void**, mailbox_callback_t)>(&F::create_mailbox_task));
static_assert(is<int(const string&, void*)>(&F::send_by_name));
static_assert(is<int(const string&, void*, size_t)>(&F::send_by_name));
static_assert(is<int(const string&, int* const[], size_t)>(&F::send_by_name<int>));

static_assert(is<WFSelectorTask*(size_t, selector_callback_t)>(&F::create_selector_task));

static_assert(is<WFConditional*(SubTask*)>(&F::create_conditional));
static_assert(is<WFConditional*(SubTask*, void**)>(&F::create_conditional));
static_assert(is<WFConditional*(const string&, SubTask*)>(&F::create_conditional));
static_assert(is<WFConditional*(const string&, SubTask*, void**)>(&F::create_conditional));
static_assert(is<int(const string&, void*)>(&F::signal_by_name));
static_assert(is<int(const string&, void*, size_t)>(&F::signal_by_name));
static_assert(is<int(const string&, int* const[], size_t)>(&F::signal_by_name<int>));
static_assert(is<WFConditional*(const string&, SubTask*)>(&F::create_guard));
static_assert(is<WFConditional*(const string&, SubTask*, void**)>(&F::create_guard));
static_assert(is<int(const string&, void*)>(&F::release_guard));
static_assert(is<int(const string&, void*)>(&F::release_guard_safe));

static_assert(is<WFGraphTask*(graph_callback_t)>(&F::create_graph_task));
static_assert(is<WFEmptyTask*()>(&F::create_empty_task));
static_assert(is<WFDynamicTask*(dynamic_create_t)>(&F::create_dynamic_task));
static_assert(
    is<WFRepeaterTask*(repeated_create_t, repeater_callback_t)>(&F::create_repeater_task));
static_assert(is<WFModuleTask*(SubTask*, module_callback_t)>(&F::create_module_task));
static_assert(is<WFModuleTask*(SubTask*, SubTask*, module_callback_t)>(&F::create_module_task));

static_assert(std::is_same_v<WFEmptyTask, WFGenericTask>);
static_assert(std::is_same_v<WFDynamicTask, WFGenericTask>);
static_assert(std::is_base_of_v<SubTask, WFGenericTask>);
static_assert(std::is_base_of_v<WFGenericTask, WFCounterTask>);
static_assert(std::is_base_of_v<WFGenericTask, WFMailboxTask>);
static_assert(std::is_base_of_v<WFGenericTask, WFSelectorTask>);
static_assert(std::is_base_of_v<WFGenericTask, WFConditional>);
static_assert(std::is_base_of_v<WFGenericTask, WFRepeaterTask>);
static_assert(std::is_base_of_v<WFGenericTask, WFGraphTask>);
static_assert(std::is_base_of_v<SubTask, WFGoTask>);
static_assert(std::is_base_of_v<SubTask, WFModuleTask>);
static_assert(std::is_base_of_v<ParallelTask, ParallelWork>);

static_assert(has<WFTimerHandle, WFTimerCancel() const>(&WFTimerHandle::cancel));
static_assert(has<WFTimerHandle, WFTimerCancel() const>(&WFTimerHandle::cancel_and_wait));
static_assert(has<WFTimerHandle, WFTimerMove(const WFTimerDue&) const>(&WFTimerHandle::reschedule));
static_assert(std::is_same_v<WFTimerVerdict, WFTimerCancel>);
static_assert(std::is_same_v<decltype(WFTimerInfo::stage), WFTimerStage>);

// The older names of the answers, also as constants of switches and templates.
constexpr bool is_cancel(WFTimerCancel older, WFTimerCancel name) {
  return older == name;
}
constexpr bool is_move(WFTimerMove older, WFTimerMove name) {
  return older == name;
}
static_assert(is_cancel(WF_TIMER_WOULD_DEADLOCK, WFTimerCancel::kWouldDeadlock));
static_assert(is_cancel(WF_TIMER_WON, WFTimerCancel::kWon));
static_assert(is_cancel(WF_TIMER_RUNNING, WFTimerCancel::kTooLate));
static_assert(is_cancel(WF_TIMER_DONE, WFTimerCancel::kDone));
static_assert(is_cancel(WF_TIMER_UNKNOWN, WFTimerCancel::kNoTimer));
static_assert(is_move(WF_TIMER_WON, WFTimerMove::kWon));
static_assert(is_move(WF_TIMER_RUNNING, WFTimerMove::kTooLate));
static_assert(is_move(WF_TIMER_DONE, WFTimerMove::kDone));
static_assert(is_move(WF_TIMER_UNKNOWN, WFTimerMove::kNoTimer));
static_assert(is_move(WF_TIMER_OTHER_CLOCK, WFTimerMove::kOtherClock));
static_assert(WF_TIMER_CREATED == WFTimerStage::kCreated);
static_assert(WF_TIMER_WAITING == WFTimerStage::kWaiting);
static_assert(WF_TIMER_ENDING == WFTimerStage::kEnding);
static_assert(WF_TIMER_TICKING == WFTimerStage::kTicking);

static_assert(has<WFCounterTask, void()>(&WFCounterTask::count));
static_assert(has<WFMailboxTask, void(void*)>(&WFMailboxTask::send));
static_assert(has<WFMailboxTask, void**() const>(&WFMailboxTask::get_mailbox));
static_assert(has<WFSelectorTask, int(void*)>(&WFSelectorTask::submit));
static_assert(has<WFSelectorTask, void*() const>(&WFSelectorTask::get_message));
static_assert(has<WFConditional, void(void*)>(&WFConditional::signal));
static_assert(has<WFRepeaterTask, void(std::function<SubTask*(WFRepeaterTask*)>)>(
    &WFRepeaterTask::set_create));
static_assert(has<WFModuleTask, SeriesWork*()>(&WFModuleTask::sub_series));
static_assert(has<WFModuleTask, const SeriesWork*() const>(&WFModuleTask::sub_series));
static_assert(has<WFGraphTask, WFGraphNode&(SubTask*)>(&WFGraphTask::create_graph_node));
static_assert(has<WFGraphNode, void(WFGraphNode&)>(&WFGraphNode::precede));
static_assert(has<WFGraphNode, void(WFGraphNode&)>(&WFGraphNode::succeed));

static_assert(
    has<workflow::ResourceSource, WFConditional*(SubTask*, void**)>(&WFResourcePool::get));
static_assert(has<workflow::ResourceSource, WFConditional*(SubTask*)>(&WFMessageQueue::get));
static_assert(has<workflow::ResourceSource, void(void*)>(&WFMessageQueue::post));

// The ranges of algorithm tasks are plain structs, and each algorithm has a type of task of its
// own.
template <class RANGE>
constexpr bool is_range(RANGE range) {
  auto [first, last] = range;
  return std::is_aggregate_v<RANGE> && first == range.first && last == range.last;
}
static_assert(is_range(algorithm::SortInput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::SortOutput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::MergeOutput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::ShuffleInput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::ShuffleOutput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::RemoveInput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::RemoveOutput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::UniqueInput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::UniqueOutput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::ReverseInput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::ReverseOutput<int>{nullptr, nullptr}));
static_assert(is_range(algorithm::RotateOutput<int>{nullptr, nullptr}));
static_assert(!std::is_same_v<WFSortTask<int>, WFShuffleTask<int>>);
static_assert(!std::is_same_v<WFUniqueTask<int>, WFReverseTask<int>>);
template <class T>
constexpr bool sorts(WFSortTask<T>* /*task*/) {  // T is deduced
  return true;
}
static_assert(sorts(static_cast<WFSortTask<int>*>(nullptr)));

static_assert(has<Executor, int(size_t)>(&Executor::init));
static_assert(has<Executor, void()>(&Executor::deinit));
static_assert(has<Executor, int()>(&Executor::increase_thread));
static_assert(has<Executor, int()>(&Executor::decrease_thread));
static_assert(is<int()>(&WFGlobal::increase_handler_thread));
static_assert(is<int()>(&WFGlobal::decrease_handler_thread));
static_assert(is<int()>(&WFGlobal::increase_compute_thread));
static_assert(is<int()>(&WFGlobal::decrease_compute_thread));
static_assert(is<int()>(&WFGlobal::sync_operation_begin));
static_assert(is<void(int)>(&WFGlobal::sync_operation_end));
static_assert(is<ExecQueue*(const string&)>(&WFGlobal::get_exec_queue));
static_assert(is<Executor*()>(&WFGlobal::get_compute_executor));

using Adding = WFThreadTask<int, long>;
using AddingFactory = WFThreadTaskFactory<int, long>;
static_assert(has<Adding, int*()>(&Adding::get_input));
static_assert(has<Adding, const int*() const>(&Adding::get_input));
static_assert(has<Adding, long*()>(&Adding::get_output));
static_assert(is<Adding*(const string&, std::function<void(int*, long*)>,
                         std::function<void(Adding*)>)>(&AddingFactory::create_thread_task));
static_assert(is<Adding*(time_t, long, const string&, std::function<void(int*, long*)>,
                         std::function<void(Adding*)>)>(&AddingFactory::create_thread_task));
static_assert(is<Adding*(ExecQueue*, Executor*, std::function<void(int*, long*)>,
                         std::function<void(Adding*)>)>(&AddingFactory::create_thread_task));

using protocol::HttpResponse;
using protocol::PackageWrapper;
using protocol::ProtocolMessage;
using protocol::ProtocolWrapper;
using protocol::TLVMessage;
static_assert(has<ProtocolMessage, int(struct iovec[], int)>(&ProtocolMessage::encode));
static_assert(has<ProtocolMessage, int(const void*, size_t*)>(&ProtocolMessage::append));
static_assert(has<ProtocolMessage, int(const void*, size_t)>(&ProtocolMessage::append));
static_assert(has<ProtocolMessage, int(const void*, size_t)>(&ProtocolMessage::feedback));
static_assert(has<ProtocolMessage, void()>(&ProtocolMessage::renew));
static_assert(has<ProtocolMessage, void(size_t)>(&ProtocolMessage::set_size_limit));
static_assert(has<ProtocolMessage, size_t() const>(&ProtocolMessage::get_size_limit));
static_assert(has<HttpResponse, void()>(&HttpResponse::parse_zero_body));
static_assert(has<TLVMessage, int() const>(&TLVMessage::get_type));
static_assert(has<TLVMessage, void(int)>(&TLVMessage::set_type));
static_assert(has<TLVMessage, string*()>(&TLVMessage::get_value));
static_assert(has<TLVMessage, const string*() const>(&TLVMessage::get_value));
static_assert(has<TLVMessage, void(string)>(&TLVMessage::set_value));
static_assert(std::is_base_of_v<ProtocolMessage, TLVMessage>);
static_assert(std::is_base_of_v<ProtocolMessage, ProtocolWrapper>);
static_assert(std::is_base_of_v<ProtocolMessage, protocol::SSLHandshaker>);
static_assert(std::is_base_of_v<ProtocolWrapper, PackageWrapper>);
static_assert(std::is_base_of_v<ProtocolWrapper, protocol::SSLWrapper>);
static_assert(std::is_base_of_v<protocol::SSLWrapper, protocol::ServerSSLWrapper>);
static_assert(std::is_constructible_v<ProtocolWrapper, ProtocolMessage*>);
static_assert(std::is_constructible_v<PackageWrapper, ProtocolMessage*>);
static_assert(std::is_constructible_v<protocol::SSLHandshaker, SSL*>);
static_assert(std::is_constructible_v<protocol::SSLWrapper, ProtocolMessage*, SSL*>);
static_assert(std::is_constructible_v<protocol::ServerSSLWrapper, ProtocolMessage*, SSL*>);
template <class T>
constexpr bool movable_only = std::is_move_constructible_v<T>&& std::is_move_assignable_v<T> &&
                              !std::is_copy_constructible_v<T>;
static_assert(movable_only<HttpResponse> && movable_only<TLVMessage>);
static_assert(movable_only<ProtocolWrapper> && movable_only<PackageWrapper>);
static_assert(movable_only<protocol::SSLHandshaker> && movable_only<protocol::ServerSSLWrapper>);

// Users derive from what the interface calls derivable, and use its protected members.
class OwnTask final : public WFGenericTask {
 protected:
  void dispatch() override {
    state = WFT_STATE_SYS_ERROR;
    error = EPERM;
    subtask_done();
  }
  SubTask* done() override {
    SeriesWork* series = series_of(this);
    delete this;
    return series->pop();
  }
};

// Methods of its own under names that the library might have used for itself.
class BusyTask final : public WFGenericTask {
 public:
  int runs = 0;
  void run() { runs++; }
  void drop() { runs++; }
  void leave() { runs++; }

 protected:
  SubTask* done() override {
    EXPECT_EQ(runs, 0);
    return WFGenericTask::done();
  }
};

class OwnCounter final : public WFCounterTask {
 public:
  explicit OwnCounter(counter_callback_t callback) : WFCounterTask(1, std::move(callback)) {}
  void count() override { WFCounterTask::count(); }
};

// With the access that programs give these functions.
class OwnMessage final : public ProtocolMessage {
 public:
  OwnMessage() { size_limit = 4; }
  OwnMessage(OwnMessage&&) = default;
  OwnMessage& operator=(OwnMessage&&) = default;

 private:
  int encode(struct iovec vectors[], int /*max*/) override {
    vectors[0] = {&text_[0], text_.size()};
    return 1;
  }
  int append(const void* buf, size_t size) override {
    if (size > size_limit) {
      errno = EMSGSIZE;
      return -1;
    }
    text_.assign(static_cast<const char*>(buf), size);
    return 1;
  }
  string text_ = "text";
};

class OwnTLV final : public TLVMessage {
 public:
  string text() const { return *get_value(); }
};

class OwnPackage final : public PackageWrapper {
 public:
  explicit OwnPackage(OwnMessage* messages) : PackageWrapper(messages), messages_(messages) {}
  OwnPackage(OwnPackage&&) = default;

 private:
  ProtocolMessage* next_out(ProtocolMessage* last) override {
    return last == messages_ ? messages_ + 1 : PackageWrapper::next_out(last);
  }
  ProtocolMessage* next_in(ProtocolMessage* last) override {
    return last == messages_ ? messages_ + 1 : PackageWrapper::next_in(last);
  }
  OwnMessage* messages_;
};

class OwnPool final : public WFResourcePool {
 public:
  OwnPool() : WFResourcePool(2) {}

 protected:
  void* pop() override { return WFResourcePool::pop(); }
  void push(void* resource) override { WFResourcePool::push(resource); }
};

}  // namespace

TEST(Signatures, DerivedKindsRunInSeries) {
  test_support::Tally ended;
  OwnPool pool;
  OwnCounter* counter = new OwnCounter([&ended](WFCounterTask*) { ended.add(); });
  SeriesWork& series = *new OwnTask > counter > pool.get(F::create_empty_task());
  series.set_callback([&ended](const SeriesWork*) { ended.add(); });
  series.start();
  counter->count();
  EXPECT_TRUE(ended.wait_for(2));
}

TEST(Signatures, OwnMessagesGoThroughWrappers) {
  OwnMessage messages[2];
  OwnPackage package(messages);
  ProtocolWrapper wrapper(&package);
  struct iovec vectors[4];
  EXPECT_EQ(wrapper.encode(vectors, 4), 2);
  size_t size = 4;
  EXPECT_EQ(wrapper.append("abcd", &size), 0);
  EXPECT_EQ(wrapper.append("efgh", &size), 1);
  OwnTLV tlv;
  tlv.set_value("value");
  EXPECT_EQ(tlv.text(), "value");
}

TEST(Signatures, GoTasksTakeQueuesExecutorsLimitsAndArguments) {
  WFFacilities::WaitGroup done(5);
  const auto finish = [&done](int) { done.done(); };
  ExecQueue* queue = WFGlobal::get_exec_queue("queue");
  Executor* executor = WFGlobal::get_compute_executor();
  F::create_go_task("queue", finish, 1)->start();
  F::create_go_task(queue, executor, finish, 1)->start();
  F::create_timedgo_task(10, 0, "queue", finish, 1)->start();
  F::create_timedgo_task(10, 0, queue, executor, finish, 1)->start();
  WFGoTask* task = F::create_go_task("queue", [] {});
  F::reset_go_task(task, finish, 1);
  task->start();
  done.wait();
  EXPECT_EQ(done.wait(0), std::future_status::ready);
}

TEST(Signatures, MessagesOfAnyTypeAreSentAsArrays) {
  int numbers[] = {1, 2};
  int* messages[] = {&numbers[0], &numbers[1]};
  void* untyped[] = {&numbers[0], &numbers[1]};
  EXPECT_EQ(F::send_by_name("nobody", messages, 2), 0);
  EXPECT_EQ(F::send_by_name("nobody", untyped, 2), 0);
  EXPECT_EQ(F::signal_by_name("nobody", messages, 2), 0);
  EXPECT_EQ(F::send_by_name("nobody", nullptr), 0);
  EXPECT_EQ(F::send_by_name("nobody", &numbers[0], 2), 0);
}

TEST(Signatures, ArrowsChainInBothDirections) {
  test_support::Tally ended;
  WFGraphTask* graph = F::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
  WFGraphNode& a = graph->create_graph_node(F::create_empty_task());
  WFGraphNode& b = graph->create_graph_node(F::create_empty_task());
  WFGraphNode& c = graph->create_graph_node(F::create_empty_task());
  a-- > b-- > c;
  c < --b < --a;
  graph->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(Signatures, DerivedKindsHaveTheirOwnNames) {
  test_support::Tally ended;
  Workflow::start_series_work(new BusyTask, [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
  (new BusyTask)->dismiss();
}

// As programs use them that were written with the older names.
TEST(Signatures, OlderNamesOfTheAnswersOfTimersAreUnderstood) {
  WFTimerTask* task = WFTimer::create(std::chrono::hours(1), nullptr);
  const WFTimerHandle handle = WFTimer::handle_of(task);
  if (handle.reschedule(std::chrono::hours(2)) != WF_TIMER_WON) ADD_FAILURE();
  EXPECT_EQ(handle.reschedule(std::chrono::system_clock::now()), WF_TIMER_OTHER_CLOCK);
  std::atomic<WFTimerVerdict> answer{WF_TIMER_UNKNOWN};
  answer = handle.cancel();
  EXPECT_EQ(answer, WF_TIMER_WON);
  switch (handle.reschedule(std::chrono::hours(1))) {
    case WF_TIMER_WON:
    case WF_TIMER_DONE:
    case WF_TIMER_UNKNOWN:
    case WF_TIMER_OTHER_CLOCK:
      ADD_FAILURE();
      break;
    case WF_TIMER_RUNNING:
      break;
  }
  task->dismiss();
  WFTimerVerdict last = WF_TIMER_WON;
  switch (last = handle.cancel()) {
    case WF_TIMER_WON:
    case WF_TIMER_RUNNING:
    case WF_TIMER_UNKNOWN:
    case WF_TIMER_WOULD_DEADLOCK:
      ADD_FAILURE();
      break;
    case WF_TIMER_DONE:
      break;
  }
  EXPECT_EQ(last, WF_TIMER_DONE);
}

TEST(Signatures, ASeriesMayHaveNoLastTask) {
  test_support::Tally ended;
  Workflow::start_series_work(F::create_empty_task(), nullptr,
                              [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
}

// A task that waits for a resource goes on only when one is given back.
TEST(Signatures, SignalsToGuardsAndGettersHaveNoEffect) {
  test_support::Tally ended;
  const auto counting = [&ended](WFTimerTask*) { ended.add(); };
  WFResourcePool pool(1);
  WFConditional* getter = pool.get(F::create_timer_task(0, counting));
  WFConditional* guard = F::create_guard("resource", F::create_timer_task(0, counting));
  getter->signal(nullptr);
  guard->signal(nullptr);
  getter->start();
  guard->start();
  EXPECT_TRUE(ended.wait_for(2));
  WFConditional* second = pool.get(F::create_timer_task(0, counting));
  second->start();
  second->signal(nullptr);
  EXPECT_EQ(ended.count(), 2u);
  pool.post(nullptr);
  EXPECT_TRUE(ended.wait_for(3));
  EXPECT_EQ(F::release_guard("resource", nullptr), 0);
}

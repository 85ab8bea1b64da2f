#include "workflow/WFTaskFactory.h"

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <utility>

#include "factory/CounterTask.h"
#include "factory/DynamicTask.h"
#include "factory/FileTask.h"
#include "factory/GuardTask.h"
#include "factory/NamedMessageTask.h"
#include "factory/ScopeTask.h"
#include "factory/TimerTask.h"
#include "kernel/DeadlineScope.h"
#include "util/BlockCache.h"
#include "util/Time.h"
#include "workflow/detail/HttpClientTask.h"

using workflow::ComputePlace;
using workflow::DeadlineScope;
using workflow::Duration;
using workflow::DynamicTask;
using workflow::FileTask;
using workflow::GuardTask;
using workflow::HttpClientTask;
using workflow::NamedConditional;
using workflow::NamedCounterTask;
using workflow::NamedMailboxTask;
using workflow::NamedTimerTask;
using workflow::PathTask;
using workflow::Ref;
using workflow::ScopeTask;
using workflow::TimerDue;
using workflow::TimerTask;
using workflow::TimeSpan;

namespace {

TimerDue due_after(const TimeSpan& delay) {
  return delay.error != 0 ? TimerDue::refused(delay.error) : TimerDue::after(delay.ns);
}

int count_of(size_t n) {
  return n > INT_MAX ? INT_MAX : static_cast<int>(n);
}

}  // namespace

WFTimerTask* WFTaskFactory::create_timer_task(time_t seconds, long nanoseconds,
                                              timer_callback_t callback) {
  return new TimerTask(due_after(TimeSpan::of(seconds, nanoseconds)), std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(const std::string& name, time_t seconds,
                                              long nanoseconds, timer_callback_t callback) {
  return NamedTimerTask::create(name, due_after(TimeSpan::of(seconds, nanoseconds)),
                                WF_TIMER_APPEND, 0, std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(Duration delay, timer_callback_t callback) {
  return new TimerTask(due_after(TimeSpan::of(delay)), std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(const std::string& name, Duration delay,
                                              timer_callback_t callback) {
  return NamedTimerTask::create(name, due_after(TimeSpan::of(delay)), WF_TIMER_APPEND, 0,
                                std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(timer_callback_t callback) {
  return new TimerTask(TimerDue::refused(ECANCELED), std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(unsigned int microseconds,
                                              timer_callback_t callback) {
  return new TimerTask(TimerDue::after(microseconds * workflow::kNsPerUs), std::move(callback));
}

int WFTaskFactory::cancel_by_name(const std::string& name) {
  return count_of(NamedTimerTask::cancel(name, SIZE_MAX));
}

int WFTaskFactory::cancel_by_name(const std::string& name, size_t max) {
  return count_of(NamedTimerTask::cancel(name, max));
}

WFCounterTask* WFTaskFactory::create_counter_task(unsigned int target,
                                                  counter_callback_t callback) {
  return new WFCounterTask(target, std::move(callback));
}

WFCounterTask* WFTaskFactory::create_counter_task(const std::string& name, unsigned int target,
                                                  counter_callback_t callback) {
  return new NamedCounterTask(name, target, std::move(callback));
}

int WFTaskFactory::count_by_name(const std::string& name) {
  return count_of(NamedCounterTask::count(name, 1));
}

int WFTaskFactory::count_by_name(const std::string& name, unsigned int n) {
  return count_of(NamedCounterTask::count(name, n));
}

WFMailboxTask* WFTaskFactory::create_mailbox_task(void** mailbox, mailbox_callback_t callback) {
  return new WFMailboxTask(mailbox, std::move(callback));
}

WFMailboxTask* WFTaskFactory::create_mailbox_task(mailbox_callback_t callback) {
  return new WFMailboxTask(std::move(callback));
}

WFMailboxTask* WFTaskFactory::create_mailbox_task(const std::string& name, void** mailbox,
                                                  mailbox_callback_t callback) {
  return new NamedMailboxTask(name, mailbox, std::move(callback));
}

WFMailboxTask* WFTaskFactory::create_mailbox_task(const std::string& name,
                                                  mailbox_callback_t callback) {
  return new NamedMailboxTask(name, std::move(callback));
}

int WFTaskFactory::send_by_name(const std::string& name, void* msg) {
  return send_by_name(name, msg, SIZE_MAX);
}

int WFTaskFactory::send_by_name(const std::string& name, void* msg, size_t max) {
  return count_of(NamedMailboxTask::deliver_to(name, max, [msg](size_t) { return msg; }));
}

int WFTaskFactory::send_each_by_name(const std::string& name, size_t max,
                                     const Messages& messages) {
  return count_of(NamedMailboxTask::deliver_to(
      name, max, [&messages](size_t i) { return messages.get(messages.array, i); }));
}

WFSelectorTask* WFTaskFactory::create_selector_task(size_t candidates,
                                                    selector_callback_t callback) {
  return new WFSelectorTask(candidates, std::move(callback));
}

WFConditional* WFTaskFactory::create_conditional(SubTask* task, void** msgbuf) {
  return new WFConditional(task, msgbuf);
}

WFConditional* WFTaskFactory::create_conditional(SubTask* task) {
  return new WFConditional(task);
}

WFConditional* WFTaskFactory::create_conditional(const std::string& name, SubTask* task,
                                                 void** msgbuf) {
  return new NamedConditional(name, task, msgbuf);
}

WFConditional* WFTaskFactory::create_conditional(const std::string& name, SubTask* task) {
  return new NamedConditional(name, task, nullptr);
}

int WFTaskFactory::signal_by_name(const std::string& name, void* msg) {
  return signal_by_name(name, msg, SIZE_MAX);
}

int WFTaskFactory::signal_by_name(const std::string& name, void* msg, size_t max) {
  return count_of(NamedConditional::deliver_to(name, max, [msg](size_t) { return msg; }));
}

int WFTaskFactory::signal_each_by_name(const std::string& name, size_t max,
                                       const Messages& messages) {
  return count_of(NamedConditional::deliver_to(
      name, max, [&messages](size_t i) { return messages.get(messages.array, i); }));
}

WFConditional* WFTaskFactory::create_guard(const std::string& resource, SubTask* task,
                                           void** msgbuf) {
  return new GuardTask(resource, task, msgbuf);
}

WFConditional* WFTaskFactory::create_guard(const std::string& resource, SubTask* task) {
  return new GuardTask(resource, task, nullptr);
}

int WFTaskFactory::release_guard(const std::string& resource, void* msg) {
  return GuardTask::release(resource, msg, false);
}

int WFTaskFactory::release_guard_safe(const std::string& resource, void* msg) {
  return GuardTask::release(resource, msg, true);
}

namespace {

class GoTask final : public WFGoTask {
 public:
  GoTask(const ComputePlace& place, const TimeSpan& limit, std::function<void()>&& function)
      : WFGoTask(place, limit, std::move(function)) {}

  // One thread creates these tasks, and another one, which computes, frees them.
  static void* operator new(size_t size) { return workflow::BlockCache::take(size); }
  static void operator delete(void* memory, size_t size) {
    workflow::BlockCache::give(memory, size);
  }

 protected:
  ~GoTask() override = default;
};

}  // namespace

WFGoTask* WFTaskFactory::make_go_task(const ComputePlace& place, const TimeSpan& limit,
                                      std::function<void()>&& function) {
  return new GoTask(place, limit, std::move(function));
}

WFGraphTask* WFTaskFactory::create_graph_task(graph_callback_t callback) {
  return new WFGraphTask(std::move(callback));
}

WFDynamicTask* WFTaskFactory::create_dynamic_task(dynamic_create_t create) {
  return new DynamicTask(std::move(create));
}

WFRepeaterTask* WFTaskFactory::create_repeater_task(repeated_create_t create,
                                                    repeater_callback_t callback) {
  return new WFRepeaterTask(std::move(create), std::move(callback));
}

WFModuleTask* WFTaskFactory::create_module_task(SubTask* first, module_callback_t callback) {
  return new WFModuleTask(first, nullptr, std::move(callback));
}

WFModuleTask* WFTaskFactory::create_module_task(SubTask* first, SubTask* last,
                                                module_callback_t callback) {
  return new WFModuleTask(first, last, std::move(callback));
}

namespace {

SeriesWork* as_series(SeriesWork* series) {
  return series;
}

SeriesWork* as_series(SubTask* task) {
  return Workflow::create_series_work(task, nullptr);
}

// If memory runs out, `inside` stays the caller's: the scope and the memory of the task come first.
template <class Inside>
WFScopeTask* in_scope(Inside* inside, const WFTimerDue& due, WFScopeTask::Callback&& callback) {
  const WFScope scope(Ref<DeadlineScope>::adopt(new DeadlineScope()));
  scope.set_deadline(due);  // only stored, because the scope is not started
  return new ScopeTask(as_series(inside), scope, std::move(callback));
}

constexpr std::chrono::nanoseconds kNoDeadline(-1);

}  // namespace

WFScopeTask* WFTaskFactory::create_scope_task(SeriesWork* series, WFScopeTask::Callback callback) {
  return in_scope(series, kNoDeadline, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_scope_task(SubTask* task, WFScopeTask::Callback callback) {
  return in_scope(task, kNoDeadline, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_deadline_task(SeriesWork* series, const WFTimerDue& due,
                                                 WFScopeTask::Callback callback) {
  return in_scope(series, due, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_deadline_task(SubTask* task, const WFTimerDue& due,
                                                 WFScopeTask::Callback callback) {
  return in_scope(task, due, std::move(callback));
}

namespace {

using Kind = workflow::FileRequest::Kind;

constexpr int kNoFd = -1;

// The operation only reads from it.
void* unconst(const void* buf) {
  return const_cast<void*>(buf);
}

}  // namespace

WFFileIOTask* WFTaskFactory::create_pread_task(int fd, void* buf, size_t count, off_t offset,
                                               fio_callback_t callback) {
  return new FileTask<FileIOArgs>(Kind::kRead, {fd, buf, count, offset}, std::move(callback));
}

WFFileIOTask* WFTaskFactory::create_pread_task(const std::string& path, void* buf, size_t count,
                                               off_t offset, fio_callback_t callback) {
  return new PathTask<FileIOArgs>(Kind::kRead, path, {kNoFd, buf, count, offset},
                                  std::move(callback));
}

WFFileIOTask* WFTaskFactory::create_pwrite_task(int fd, const void* buf, size_t count, off_t offset,
                                                fio_callback_t callback) {
  return new FileTask<FileIOArgs>(Kind::kWrite, {fd, unconst(buf), count, offset},
                                  std::move(callback));
}

WFFileIOTask* WFTaskFactory::create_pwrite_task(const std::string& path, const void* buf,
                                                size_t count, off_t offset,
                                                fio_callback_t callback) {
  return new PathTask<FileIOArgs>(Kind::kWrite, path, {kNoFd, unconst(buf), count, offset},
                                  std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_preadv_task(int fd, const struct iovec* iov, int iovcnt,
                                                 off_t offset, fvio_callback_t callback) {
  return new FileTask<FileVIOArgs>(Kind::kReadVector, {fd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_preadv_task(const std::string& path, const struct iovec* iov,
                                                 int iovcnt, off_t offset,
                                                 fvio_callback_t callback) {
  return new PathTask<FileVIOArgs>(Kind::kReadVector, path, {kNoFd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_pwritev_task(int fd, const struct iovec* iov, int iovcnt,
                                                  off_t offset, fvio_callback_t callback) {
  return new FileTask<FileVIOArgs>(Kind::kWriteVector, {fd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_pwritev_task(const std::string& path, const struct iovec* iov,
                                                  int iovcnt, off_t offset,
                                                  fvio_callback_t callback) {
  return new PathTask<FileVIOArgs>(Kind::kWriteVector, path, {kNoFd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileSyncTask* WFTaskFactory::create_fsync_task(int fd, fsync_callback_t callback) {
  return new FileTask<FileSyncArgs>(Kind::kSync, {fd}, std::move(callback));
}

WFFileSyncTask* WFTaskFactory::create_fdatasync_task(int fd, fsync_callback_t callback) {
  return new FileTask<FileSyncArgs>(Kind::kDataSync, {fd}, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const std::string& url, int redirect_max, int retry_max,
                                            http_callback_t callback) {
  ParsedURI uri;
  URIParser::parse(url, uri);
  return create_http_task(uri, redirect_max, retry_max, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const ParsedURI& uri, int redirect_max, int retry_max,
                                            http_callback_t callback) {
  return new HttpClientTask(uri, nullptr, redirect_max, retry_max, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const std::string& url, const std::string& proxy_url,
                                            int redirect_max, int retry_max,
                                            http_callback_t callback) {
  ParsedURI uri;
  ParsedURI proxy;
  URIParser::parse(url, uri);
  URIParser::parse(proxy_url, proxy);
  return create_http_task(uri, proxy, redirect_max, retry_max, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const ParsedURI& uri, const ParsedURI& proxy,
                                            int redirect_max, int retry_max,
                                            http_callback_t callback) {
  return new HttpClientTask(uri, &proxy, redirect_max, retry_max, std::move(callback));
}

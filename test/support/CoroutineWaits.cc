#include "support/CoroutineWaits.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <sstream>
#include <string_view>
#include <utility>

#include "support/Loopback.h"

namespace test_support {

namespace {

std::string text_of_end(const char* what, const std::optional<WFEnd>& end) {
  std::ostringstream text;
  text << ", " << what << ": ";
  if (end) {
    text << "state " << end->state << ", error " << end->error;
  } else {
    text << "none";
  }
  return text.str();
}

}  // namespace

// Where drop() finds the series, as long as the frame lives in which this object is.
class WaitPlace::OwnSeries {
 public:
  OwnSeries(WaitPlace& place, SeriesWork* series) : place_(place) {
    const std::lock_guard<std::mutex> lock(place_.mutex_);
    place_.series_ = series;
  }
  ~OwnSeries() {
    const std::lock_guard<std::mutex> lock(place_.mutex_);
    place_.series_ = nullptr;
  }
  OwnSeries(const OwnSeries&) = delete;
  OwnSeries& operator=(const OwnSeries&) = delete;

 private:
  WaitPlace& place_;
};

WaitPlace::WaitPlace(const WaitKind& kind, std::string name) : kind_(kind), name_(std::move(name)) {
  if (kind_.prepare) kind_.prepare(*this);
}

WaitPlace::~WaitPlace() {
  if (WFSelectorTask* const selector = take_selector()) selector->submit(nullptr);
}

WFCo<> WaitPlace::stay() {
  const Frame frame(*this);
  SeriesWork* const own = co_await wf::own_series();
  const OwnSeries series(*this, own);
  ended = co_await kind_.wait(*this);
  const bool is_over = ended->state == WFT_STATE_ABORTED || WFScope::current().error() != 0;
  if (is_over && !*ended) again = co_await kind_.wait(*this);
}

WFCo<bool> WaitPlace::lose() {
  const auto wait = [this]() -> WFCo<> {
    const Frame frame(*this);
    ended = co_await kind_.wait(*this);
  };
  const auto first = co_await wf::any(wait(), wf::sleep(std::chrono::microseconds(1)));
  co_return first.index == 1 && frames_begun_ > 0 && frames_begun_ == frames_gone_;
}

void WaitPlace::bring() {
  ways_.brought = true;
  if (kind_.bring) kind_.bring(*this);
}

void WaitPlace::cancel(const WFScope& scope) {
  ways_.canceled = true;
  scope.cancel();
}

void WaitPlace::set_deadline(const WFScope& scope, const WFTimerDue& due) {
  ways_.timed_out = true;
  scope.set_deadline(due);
}

void WaitPlace::drop() {
  ways_.dropped = true;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (series_) series_->cancel();
}

// Whether one of the ways gone explains this end.
bool WaitPlace::may_end(const WFEnd& end) const {
  if (!kind_.bring && end) return true;
  if (ways_.brought && end == kind_.brought) return true;
  if (ways_.stopped && end == WFEnd{WFT_STATE_ABORTED, 0}) return true;
  if (ways_.canceled && end == WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}) return true;
  return ways_.timed_out && end == WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT};
}

std::string WaitPlace::problem() const {
  const char* problem = nullptr;
  if (frames_begun_ == 0) problem = "it has never begun";
  if (frames_begun_ != frames_gone_) problem = "frames are left, or were destroyed twice";
  if (stranger_) problem = "it has got what nobody has brought";
  if (!ended && !ways_.dropped) problem = "it was dropped";
  if (ended && !may_end(*ended)) problem = "it has ended in a way that nobody has gone";
  if (again && !may_end(*again)) problem = "the next wait has ended in a way that nobody has gone";
  if (!problem) return "";
  std::ostringstream text;
  text << kind_.name << ": " << problem << text_of_end("ended", ended)
       << text_of_end("again", again) << ", frames " << frames_begun_ << " begun, " << frames_gone_
       << " gone, ways " << ways_.brought << ways_.canceled << ways_.timed_out << ways_.stopped
       << ways_.dropped;
  return text.str();
}

WFCo<bool> WaitPlace::nothing_is_lost() {
  if (!kind_.is_back) co_return true;
  const bool is_back = co_await kind_.is_back(*this);
  co_return is_back;
}

WFEnd WaitPlace::got(const WFEnded<void*>& end) {
  if (end && *end.value != thing()) stranger_ = true;
  return end;
}

void WaitPlace::once(const std::function<void()>& act) {
  if (!done_once_.exchange(true)) act();
}

void WaitPlace::keep_handle(const WFTimerHandle& handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  handle_ = handle;
}

WFTimerHandle WaitPlace::handle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return handle_;
}

void WaitPlace::keep_selector(WFSelectorTask* selector) {
  if (WFSelectorTask* const before = selector_.exchange(selector)) before->submit(nullptr);
}

WFSelectorTask* WaitPlace::take_selector() {
  return selector_.exchange(nullptr);
}

uint16_t WaitPlace::port() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!listener_.valid()) {
    listener_ = listen_on_loopback();
    ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  }
  return port_of(listener_.get());
}

void WaitPlace::answer() {
  constexpr std::string_view kAnswer =
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthing";
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!listener_.valid()) return;
  for (;;) {
    workflow::UniqueFd fd(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) break;
    peers_.emplace_back(std::move(fd), "");
  }
  for (auto& [fd, text] : peers_) {
    char bytes[512];
    const ssize_t n = fd.valid() ? ::recv(fd.get(), bytes, sizeof bytes, 0) : 0;
    if (n > 0) text.append(bytes, static_cast<size_t>(n));
    if (fd.valid() && text.ends_with("\r\n\r\n")) {
      ::send(fd.get(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
      fd.reset();
    }
  }
}

bool WaitPlace::is_asked() {
  const std::lock_guard<std::mutex> lock(mutex_);
  struct pollfd asked = {listener_.get(), POLLIN, 0};
  return listener_.valid() && ::poll(&asked, 1, 0) == 1;
}

}  // namespace test_support

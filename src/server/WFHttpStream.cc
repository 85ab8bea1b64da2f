#include "workflow/WFHttpStream.h"

#include <cerrno>
#include <new>
#include <string_view>
#include <utility>

#include "server/ReplyStream.h"
#include "workflow/WFHttpServer.h"

namespace {

using ServerTask = WFServerTask<protocol::HttpRequest, protocol::HttpResponse>;

bool is_one_line(std::string_view text) {
  constexpr std::string_view kNever("\r\n\0", 3);
  return text.find_first_of(kNever) == std::string_view::npos;
}

// A line ends with CR, LF or both; each is a field of its own.
void append_lines(std::string& text, std::string_view field, std::string_view lines) {
  for (;;) {
    const size_t end = lines.find_first_of("\r\n");
    text.append(field).append(lines.substr(0, end)).append("\n");
    if (end == std::string_view::npos) return;
    const bool both = lines.compare(end, 2, "\r\n") == 0;
    lines.remove_prefix(end + (both ? 2 : 1));
  }
}

int no_stream() {
  errno = ENOTCONN;
  return -1;
}

}  // namespace

WFHttpStream WFHttpStream::open(WFHttpTask* task, bool of_events) {
  ServerTask* const server_task = dynamic_cast<ServerTask*>(task);
  if (!server_task) {
    errno = EINVAL;
    return WFHttpStream();
  }
  return WFHttpStream(server_task->begin_stream(of_events));
}

WFHttpStream WFHttpStream::begin(WFHttpTask* task) {
  return open(task, false);
}

WFHttpStream WFHttpStream::begin_events(WFHttpTask* task) {
  return open(task, true);
}

int WFHttpStream::write(const void* data, size_t size) const {
  return stream_ ? stream_->write({static_cast<const char*>(data), size}) : no_stream();
}

int WFHttpStream::send_event(const WFServerEvent& event) const {
  if (!stream_) return no_stream();
  if (!is_one_line(event.event) || !is_one_line(event.id)) {
    errno = EINVAL;
    return -1;
  }
  try {
    std::string text;
    if (!event.event.empty()) text.append("event: ").append(event.event).append("\n");
    if (!event.id.empty()) text.append("id: ").append(event.id).append("\n");
    if (event.retry >= 0) text.append("retry: ").append(std::to_string(event.retry)).append("\n");
    if (!event.data.empty()) append_lines(text, "data: ", event.data);
    text.append("\n");
    return stream_->write(text);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

int WFHttpStream::send_comment(const std::string& comment) const {
  if (!stream_) return no_stream();
  try {
    std::string text;
    append_lines(text, ": ", comment);
    text.append("\n");
    return stream_->write(text);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

int WFHttpStream::set_heartbeat(int ms) const {
  return stream_ ? stream_->set_heartbeat(ms) : no_stream();
}

size_t WFHttpStream::unsent() const {
  return stream_ ? stream_->unsent() : 0;
}

bool WFHttpStream::closed() const {
  return !stream_ || stream_->closed();
}

bool WFHttpStream::stopping() const {
  return stream_ && stream_->stopping();
}

WFStreamTask* WFHttpStream::create_room_task(std::function<void(WFStreamTask*)> callback) const {
  return create_write_task(std::string(), std::move(callback));
}

WFStreamTask* WFHttpStream::create_write_task(std::string data,
                                              std::function<void(WFStreamTask*)> callback) const {
  return new WFStreamTask(stream_, std::move(data), std::move(callback));
}

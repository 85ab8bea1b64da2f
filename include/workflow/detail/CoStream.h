#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/WFCo.h"
#include "workflow/WFEnd.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFHttpStream.h"

// A streamed reply for coroutines (see WFHttpStream). The reply ends when the series of the request
// does: with wf::serve(), when the coroutine that serves the request has returned.
//
//   auto stream = wf::stream(task);
//   for (const std::string &line : lines) {
//     if (!co_await stream.write(line)) co_return;  // the client has left
//   }
class WFCoStream {
 public:
  explicit WFCoStream(WFHttpStream stream) : stream_(std::move(stream)) {}

  // Whether the reply has begun. If not, errno of wf::stream() says why.
  explicit operator bool() const { return static_cast<bool>(stream_); }
  const WFHttpStream &handle() const { return stream_; }

  // Writes the data, of any size, as fast as the client takes it. The wait ends when all of it is
  // written and little of it has still to be sent. Gives a WFEnd.
  auto write(std::string data) const {
    return workflow::CoWork<WFStreamTask>{stream_.create_write_task(std::move(data), nullptr)};
  }
  // Waits until few bytes have still to be sent. Gives a WFEnd.
  auto room() const { return workflow::CoWork<WFStreamTask>{stream_.create_room_task(nullptr)}; }
  // Sends an event and waits for room. The stream takes the event over as a whole. Ends with
  // SYS_ERROR and EINVAL if `event` or `id` has more than one line. (With g++ 12, bind a
  // WFServerEvent to a variable first: as a temporary in a co_await it would be destroyed twice.)
  WFCo<WFEnd> send_event(const WFServerEvent &event) const { return send(stream_, event); }
  WFCo<WFEnd> send_event(std::string data, std::string event = "", std::string id = "") const {
    WFServerEvent all;
    all.data = std::move(data);
    all.event = std::move(event);
    all.id = std::move(id);
    return send(stream_, std::move(all));
  }

 private:
  static WFCo<WFEnd> send(WFHttpStream stream, WFServerEvent event) {
    const int sent = stream.send_event(event);
    const int error = errno;
    if (sent != 0) co_return WFEnd{WFT_STATE_SYS_ERROR, error};
    WFStreamTask *const room = stream.create_room_task(nullptr);
    co_return co_await room;
  }

  WFHttpStream stream_;
};

// A response that a coroutine reads piece by piece (see WFHttpChunkedTask). Nothing more is read
// from the connection while the coroutine does other things.
//
//   WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 4, nullptr, nullptr));
//   while (auto piece = co_await chunks.next()) use(*piece);
//   chunks.end().check();
//
// The object owns the task. If it is destroyed before the end of the response, the connection is
// closed. Used by one coroutine at a time.
class WFCoChunks {
 private:
  class State;
  class Awaiter;
  struct Next {
    State *state;
    Awaiter awaiter(workflow::CoTask *waiter) const;
  };

 public:
  // Takes over a task that was not started, whose `extract` is not used.
  explicit WFCoChunks(WFHttpChunkedTask *task) : state_(task) {}
  WFCoChunks(const WFCoChunks &) = delete;
  WFCoChunks &operator=(const WFCoChunks &) = delete;

  // Waits for the next piece. Gives a std::optional<std::string>, which is empty when the response
  // has ended, or has failed.
  [[nodiscard]] auto next() { return Next{&state_}; }

  // Returns how the response has ended. The state is UNDEFINED before that.
  WFEnd end() const { return state_.end; }
  // Returns the head of the response, once a piece has come or the response has ended.
  const protocol::HttpResponse &response() const {
    return state_.task ? *state_.task->get_resp() : state_.response;
  }

 private:
  class State final : public workflow::ChunkReader {
   public:
    explicit State(WFHttpChunkedTask *of) : task(of) {
      workflow::CoTask::check_awaitable(of);
      task->set_reader(this);
      workflow::CoAccess::add_callback(static_cast<workflow::TaskWithCallback<WFHttpTask> *>(of),
                                       [this] { ended(); });
    }
    ~State() {
      if (task) task->dismiss();
    }
    State(const State &) = delete;
    State &operator=(const State &) = delete;

    void piece(const char *data, size_t size) override { arrived.emplace(data, size); }
    void dropped() override {
      task = nullptr;
      end = {WFT_STATE_SYS_ERROR, ECANCELED};
    }

    WFHttpChunkedTask *task;  // null once it has ended
    std::optional<std::string> arrived;
    WFEnd end;
    protocol::HttpResponse response;

   private:
    void ended() {
      end = {task->get_state(), task->get_error()};
      response = std::move(*task->get_resp());
      task = nullptr;
    }
  };

  class Awaiter {
   public:
    Awaiter(workflow::CoTask *waiter, State *state) : waiter_(waiter), state_(state) {}
    bool await_ready() const noexcept { return !state_->task; }
    [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
      waiter_->wait_for(state_->task);
    }
    std::optional<std::string> await_resume() {
      return std::exchange(state_->arrived, std::nullopt);
    }

   private:
    workflow::CoTask *const waiter_;
    State *const state_;
  };

  State state_;
};

inline WFCoChunks::Awaiter WFCoChunks::Next::awaiter(workflow::CoTask *waiter) const {
  return Awaiter(waiter, state);
}

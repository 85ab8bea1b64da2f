#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>

#include "support/Loopback.h"
#include "support/TestServer.h"
#include "support/UdpSocket.h"
#include "workflow/WFServer.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

namespace server_test {

using test_support::UdpSocket;

// A message that is a whole datagram. The first byte says what it is: "=" begins a message. After
// "+", more would have to come. After "2", a second message follows. Anything else is refused. An
// empty datagram is a message.
class Note : public protocol::ProtocolMessage {
 public:
  int append(const void* buffer, size_t* size) override {
    text.append(static_cast<const char*>(buffer), *size);
    if (text.size() > size_limit) {
      errno = EMSGSIZE;
      return -1;
    }
    if (text[0] == '!') {
      feedback("heard", 5);
    }
    if (text.empty() || text[0] == '=' || text[0] == '!') return 1;
    if (text[0] == '2') {
      *size -= 1;
      return 1;
    }
    errno = EBADMSG;
    return text[0] == '+' ? 0 : -1;
  }
  int encode(struct iovec vectors[], int /*max*/) override {
    vectors[0] = {text.data(), text.size() / 2};
    vectors[1] = {text.data() + text.size() / 2, text.size() - text.size() / 2};
    return text.empty() ? 0 : 2;
  }

  std::string text;
};

using NoteTask = WFNetworkTask<Note, Note>;

inline struct WFServerParams udp_params() {
  struct WFServerParams params = SERVER_PARAMS_DEFAULT;
  params.transport_type = TT_UDP;
  return params;
}

inline void echo_note(NoteTask* task) {
  task->get_resp()->text = task->get_req()->text;
}

// "=NAME" is held under that name until it is cancelled; "=" alone is not.
inline void hold_note(NoteTask* task) {
  echo_note(task);
  const std::string name = task->get_req()->text.substr(1);
  if (!name.empty()) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(name, 3600, 0, nullptr));
  }
}

// A server for datagrams on 127.0.0.1, started. Stops when destroyed.
class NoteServer : public WFServer<Note, Note> {
 public:
  explicit NoteServer(Process process = echo_note,
                      const struct WFServerParams& params = udp_params())
      : WFServer(&params, std::move(process)) {
    EXPECT_EQ(start("127.0.0.1", 0), 0);
  }
  ~NoteServer() override { stop(); }
  uint16_t port() const { return test_support::port_of(*this); }
};

}  // namespace server_test

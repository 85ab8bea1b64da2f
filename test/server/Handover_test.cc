#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/Eventually.h"
#include "support/Loopback.h"
#include "support/RawClient.h"
#include "util/UniqueFd.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

// A server process hands its listening socket to the next one and stops, under load: no connection
// is refused, and no request is lost.

namespace server_test {
namespace {

constexpr const char* kOnce = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
constexpr const char* kKept = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

// A process that serves the socket from one command to the next, with replies that take 5 ms and
// carry its name.
class ServerProcess {
 public:
  // Before this process has any other thread.
  ServerProcess(const std::string& name, int listen_fd) {
    int down[2];
    int up[2];
    if (::pipe(down) != 0 || ::pipe(up) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(down[1]);
      ::close(up[0]);
      std::exit(live(name, listen_fd, down[0], up[1]));
    }
    ::close(down[0]);
    ::close(up[1]);
    commands_ = workflow::UniqueFd(down[1]);
    answers_ = workflow::UniqueFd(up[0]);
  }
  ~ServerProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  // The first begins to serve, the second stops. Returns when that is done.
  bool command() {
    char byte = 'c';
    return ::write(commands_.get(), &byte, 1) == 1 && ::read(answers_.get(), &byte, 1) == 1;
  }
  int exit_code() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  static int live(const std::string& name, int listen_fd, int commands, int answers) {
    char byte = 0;
    if (::read(commands, &byte, 1) != 1) return 1;
    WFHttpServer server([&name](WFHttpTask* task) {
      task->get_resp()->append_output_body(name);
      series_of(task)->push_back(WFTaskFactory::create_timer_task(5000, nullptr));
    });
    if (server.serve(listen_fd) != 0 || ::write(answers, &byte, 1) != 1 ||
        ::read(commands, &byte, 1) != 1) {
      return 2;
    }
    server.stop();
    return ::write(answers, &byte, 1) == 1 ? 0 : 3;
  }

  pid_t pid_ = -1;
  workflow::UniqueFd commands_;
  workflow::UniqueFd answers_;
};

struct Counts {
  std::atomic<bool> enough{false};
  std::atomic<int> by_a{0};
  std::atomic<int> by_b{0};
  std::atomic<int> refused{0};
  std::atomic<int> lost{0};      // half a reply, or none on several connections
  std::atomic<int> repeated{0};  // the connection was closed before anything came

  void note(const std::string& body) { (body == "A" ? by_a : body == "B" ? by_b : lost)++; }
};

// Whether it was answered. What a server that stops has closed without a byte of a reply is asked
// again, as a client does (RFC 9110, 9.2.2).
bool ask(RawClient& client, const char* request, Counts& counts) {
  if (!client.send(request)) return false;
  const auto got = client.reply();
  if (got) {
    counts.note(got->body);
  } else if (!client.take_text(1).empty()) {
    counts.lost++;
    return true;
  }
  return got.has_value();
}

void keep_asking(uint16_t port, bool keeps, Counts& counts) {
  RawClient client;
  while (!counts.enough) {
    const bool fresh = !keeps || !client.connected();
    if (fresh) {
      client = RawClient(port);
      counts.refused += !client.connected();
    }
    if (ask(client, keeps ? kKept : kOnce, counts)) continue;
    // A server that stops may also take the connection that it accepts at this moment.
    bool answered = false;
    for (int tries = 0; tries < 2 && !answered; tries++) {
      counts.repeated++;
      client = RawClient(port);
      counts.refused += !client.connected();
      answered = ask(client, keeps ? kKept : kOnce, counts);
    }
    if (!answered) {
      counts.lost++;
      client.close();
    }
  }
}

}  // namespace

TEST(Handover, NoConnectionIsRefusedAndNoRequestLost) {
  const workflow::UniqueFd fd = test_support::listen_on_loopback(1024);
  ASSERT_TRUE(fd.valid());
  const uint16_t port = test_support::port_of(fd.get());
  ServerProcess a("A", fd.get());
  ServerProcess b("B", fd.get());
  ASSERT_TRUE(a.command());
  Counts counts;
  std::vector<std::jthread> clients;
  for (int i = 0; i < 8; i++) {
    clients.emplace_back([&, i] { keep_asking(port, i % 2 == 1, counts); });
  }
  const auto load_for = [](int ms) {  // under load, which is what this is about
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  load_for(300);
  EXPECT_TRUE(test_support::eventually([&] { return counts.by_a > 0; }));
  EXPECT_TRUE(b.command());
  EXPECT_TRUE(a.command());
  EXPECT_EQ(a.exit_code(), 0);
  const int by_a = counts.by_a;
  load_for(300);
  EXPECT_TRUE(test_support::eventually([&] { return counts.by_b > 0; }));
  counts.enough = true;
  clients.clear();  // joins them
  std::printf("%d by A, %d by B, %d asked again\n", counts.by_a.load(), counts.by_b.load(),
              counts.repeated.load());
  EXPECT_LE(counts.by_a, by_a + 8);
  EXPECT_EQ(counts.refused, 0);
  EXPECT_EQ(counts.lost, 0);
  // A client is told a few times at most, however slow the server that leaves is.
  EXPECT_LE(counts.repeated, 40);
  EXPECT_TRUE(b.command());
  EXPECT_EQ(b.exit_code(), 0);
}

}  // namespace server_test

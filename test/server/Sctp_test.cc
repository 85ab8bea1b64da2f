#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "support/Certificates.h"
#include "support/Loopback.h"
#include "util/UniqueFd.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFServer.h"
#include "workflow/WFTaskFactory.h"

// SCTP, which a kernel has or has not: either answer is a right one, and both sides give it.

namespace {

using protocol::TLVRequest;
using protocol::TLVResponse;
using Task = WFNetworkTask<TLVRequest, TLVResponse>;
using Server = WFServer<TLVRequest, TLVResponse>;
using Factory = WFNetworkTaskFactory<TLVRequest, TLVResponse>;

// 0, or why this kernel has no SCTP.
int kernels_answer() {
  const workflow::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_SCTP));
  return fd.valid() ? 0 : errno;
}

struct Answer {
  int state = -2;
  int error = 0;
  std::string value;
};

Answer ask_over(enum TransportType transport, unsigned short port) {
  Answer answer;
  WFFacilities::WaitGroup group(1);
  Task* task = Factory::create_client_task(transport, "127.0.0.1", port, 2, [&](Task* ended) {
    answer = {ended->get_state(), ended->get_error(), *ended->get_resp()->get_value()};
    group.done();
  });
  task->get_req()->set_value("over SCTP");
  task->start();
  group.wait();
  return answer;
}

// What a server and a client of that transport say, plain or with a certificate.
void expect_what_the_kernel_says(enum TransportType transport,
                                 const test_support::Certificate* certificate) {
  struct WFServerParams params = SERVER_PARAMS_DEFAULT;
  params.transport_type = transport;
  Server server(&params, [](Task* task) {
    task->get_resp()->set_value(*task->get_req()->get_value() + ", echoed");
  });
  const int error = kernels_answer();
  errno = 0;
  const int started =
      server.start("127.0.0.1", 0, certificate ? certificate->cert_file.c_str() : nullptr,
                   certificate ? certificate->key_file.c_str() : nullptr);
  if (error != 0) {
    EXPECT_EQ(error, EPROTONOSUPPORT);
    EXPECT_EQ(started, -1);
    EXPECT_EQ(errno, error);
    const Answer answer = ask_over(transport, 1);
    EXPECT_EQ(answer.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(answer.error, error);
    return;
  }
  ASSERT_EQ(started, 0);
  const Answer answer = ask_over(transport, test_support::port_of(server));
  EXPECT_EQ(answer.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(answer.value, "over SCTP, echoed");
  server.stop();
}

}  // namespace

TEST(Sctp, AnswersWhatTheKernelDoes) {
  expect_what_the_kernel_says(TT_SCTP, nullptr);
}

TEST(Sctp, OverTlsToo) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str()), 1);
  expect_what_the_kernel_says(TT_SCTP_SSL, &certificate);
}

// No kernel has SCTP over unix sockets.
TEST(Sctp, NotOverUnixSockets) {
  struct WFServerParams params = SERVER_PARAMS_DEFAULT;
  params.transport_type = TT_SCTP;
  Server server(&params, [](Task*) {});
  const struct sockaddr address = {AF_UNIX, {}};
  EXPECT_EQ(server.start(&address, sizeof address.sa_family), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
}

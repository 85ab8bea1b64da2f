#include "workflow/WFGlobal.h"

#include <gtest/gtest.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "kernel/Runtime.h"
#include "support/Eventually.h"
#include "workflow/WFFacilities.h"

namespace {

std::string error_string(int state, int error) {
  return WFGlobal::get_error_string(state, error);
}

// The names of this process's threads, with how many have each.
std::map<std::string, int> threads_by_name() {
  std::map<std::string, int> count;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(thread.path() / "comm") >> name;
    count[name]++;
  }
  return count;
}

// Uses every kind of thread, then prints how many of each there are, and ends the process. Spare
// threads, which help where one gets no processor for long, leave some seconds later.
[[noreturn]] void report_threads(int pollers, int handlers, int compute) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = pollers;
  settings.handler_threads = handlers;
  settings.compute_threads = compute;
  WORKFLOW_library_init(&settings);
  workflow::Runtime& runtime = workflow::Runtime::current();
  test_support::eventually([&] { return runtime.handlers().idle(); });
  WFFacilities::usleep(1000);
  WFFacilities::WaitGroup group(1);
  WFFacilities::go("queue", [&group] { group.done(); });
  group.wait();
  std::map<std::string, int> count;
  test_support::eventually([&] {
    count = threads_by_name();
    return count["wf-poller"] == static_cast<int>(runtime.poller_count()) &&
           count["wf-handler"] == runtime.handlers().configured_threads();
  });
  std::fprintf(stderr, "threads: %d %d %d.\n", count["wf-poller"], count["wf-handler"],
               count["wf-compute"]);
  std::_Exit(0);
}

// As many as this process may use, which may be fewer than the machine has.
int processor_count() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}
std::string processors() {
  return std::to_string(processor_count());
}
std::string pollers() {
  return std::to_string(std::min(processor_count(), 4));
}

void use_one_processor_only() {
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  for (int i = CPU_SETSIZE - 1; CPU_COUNT(&set) > 1; i--) {
    CPU_CLR(i, &set);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
}

}  // namespace

TEST(WFGlobalSettings, DefaultsAreThoseOfTheInterface) {
  const struct EndpointParams endpoint = ENDPOINT_PARAMS_DEFAULT;
  EXPECT_EQ(endpoint.address_family, AF_UNSPEC);
  EXPECT_EQ(endpoint.max_connections, 200u);
  EXPECT_EQ(endpoint.connect_timeout, 10'000);
  EXPECT_EQ(endpoint.response_timeout, 10'000);
  EXPECT_EQ(endpoint.ssl_connect_timeout, 10'000);
  EXPECT_TRUE(endpoint.use_tls_sni);
  EXPECT_EQ(endpoint.response_size_limit, 1u << 30);
  const struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  EXPECT_EQ(settings.poller_threads, -1);
  EXPECT_EQ(settings.handler_threads, 20);
  EXPECT_STREQ(settings.hosts_path, "/etc/hosts");
}

TEST(WFGlobalSettings, AreReadBackAndOldPointersStay) {
  const struct WFGlobalSettings* before = WFGlobal::get_global_settings();
  const struct WFGlobalSettings copy = *before;
  struct WFGlobalSettings settings = copy;
  settings.dns_ttl_min++;
  settings.endpoint_params.max_connections++;
  WFGlobal::set_global_settings(&settings);
  const struct WFGlobalSettings* after = WFGlobal::get_global_settings();
  EXPECT_EQ(after->dns_ttl_min, copy.dns_ttl_min + 1);
  EXPECT_EQ(after->endpoint_params.max_connections, copy.endpoint_params.max_connections + 1);
  EXPECT_EQ(before->dns_ttl_min, copy.dns_ttl_min);
}

class WFGlobalThreads : public testing::Test {
 protected:
  // The threads are made once per process.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(WFGlobalThreads, AreAsManyAsTheSettingsSay) {
  EXPECT_EXIT(report_threads(2, 3, 4), testing::ExitedWithCode(0), "threads: 2 3 4\\.");
  EXPECT_EXIT(report_threads(1, 1, 1), testing::ExitedWithCode(0), "threads: 1 1 1\\.");
}

TEST_F(WFGlobalThreads, BelowOneIsOneOrTheNumberOfProcessors) {
  EXPECT_EXIT(report_threads(0, 0, 0), testing::ExitedWithCode(0),
              "threads: " + pollers() + " 1 " + processors() + "\\.");
  EXPECT_EXIT(report_threads(-1, -1, -1), testing::ExitedWithCode(0),
              "threads: " + pollers() + " 1 " + processors() + "\\.");
  EXPECT_EXIT(report_threads(INT_MIN, INT_MIN, INT_MIN), testing::ExitedWithCode(0),
              "threads: " + pollers() + " 1 " + processors() + "\\.");
}

TEST_F(WFGlobalThreads, AreAsManyAsTheProcessorsThatTheProcessMayUse) {
  EXPECT_EXIT(
      {
        use_one_processor_only();
        report_threads(0, 1, 0);
      },
      testing::ExitedWithCode(0), "threads: 1 1 1\\.");
}

TEST_F(WFGlobalThreads, DoNotChangeOnceTheyRun) {
  EXPECT_EXIT(
      {
        WFFacilities::usleep(1);
        report_threads(2, 3, 4);
      },
      testing::ExitedWithCode(0), "threads: " + pollers() + " 20 " + processors() + "\\.");
}

TEST(WFGlobalPorts, HttpIsKnown) {
  EXPECT_STREQ(WFGlobal::get_default_port("http"), "80");
  EXPECT_STREQ(WFGlobal::get_default_port("HTTPS"), "443");
  EXPECT_EQ(WFGlobal::get_default_port("gopher"), nullptr);
  EXPECT_EQ(WFGlobal::get_default_port(""), nullptr);
}

TEST(WFGlobalPorts, RegisteredOnesAreFoundInAnyCase) {
  WFGlobal::register_scheme_port("MyProto", 65535);
  const char* port = WFGlobal::get_default_port("myPROTO");
  EXPECT_STREQ(port, "65535");
  WFGlobal::register_scheme_port("myproto", 1);
  EXPECT_STREQ(WFGlobal::get_default_port("MYPROTO"), "1");
  EXPECT_STREQ(port, "65535");
}

TEST(WFGlobalErrorString, OfSystemErrors) {
  EXPECT_EQ(error_string(WFT_STATE_SYS_ERROR, ECANCELED), "Operation canceled");
  EXPECT_EQ(error_string(WFT_STATE_SYS_ERROR, EADDRINUSE), std::strerror(EADDRINUSE));
  EXPECT_EQ(error_string(WFT_STATE_SYS_ERROR, 0), "Success");
  EXPECT_EQ(error_string(WFT_STATE_SYS_ERROR, 123456), "Unknown error");
  EXPECT_EQ(error_string(WFT_STATE_SYS_ERROR, -1), "Unknown error");
}

TEST(WFGlobalErrorString, OfDnsErrors) {
  EXPECT_EQ(error_string(WFT_STATE_DNS_ERROR, EAI_NONAME), ::gai_strerror(EAI_NONAME));
  EXPECT_NE(error_string(WFT_STATE_DNS_ERROR, 123456), "");
}

TEST(WFGlobalErrorString, OfTlsErrors) {
  EXPECT_EQ(error_string(WFT_STATE_SSL_ERROR, SSL_ERROR_ZERO_RETURN),
            "TLS connection closed by the peer");
  const unsigned long code = ERR_PACK(ERR_LIB_SSL, 0, SSL_R_CERTIFICATE_VERIFY_FAILED);
  EXPECT_EQ(error_string(WFT_STATE_SSL_ERROR, static_cast<int>(code)), "certificate verify failed");
  EXPECT_EQ(error_string(WFT_STATE_SSL_ERROR, -X509_V_ERR_CERT_HAS_EXPIRED),
            "certificate has expired");
  EXPECT_EQ(error_string(WFT_STATE_SSL_ERROR, 99), "Unknown error");
}

TEST(WFGlobalErrorString, OfTaskErrors) {
  for (const int error : {WFT_ERR_URI_PARSE_FAILED, WFT_ERR_URI_SCHEME_INVALID,
                          WFT_ERR_URI_PORT_INVALID, WFT_ERR_UPSTREAM_UNAVAILABLE,
                          WFT_ERR_HTTP_BAD_REDIRECT_HEADER, WFT_ERR_HTTP_PROXY_CONNECT_FAILED}) {
    EXPECT_NE(error_string(WFT_STATE_TASK_ERROR, error), "Unknown error") << error;
  }
  EXPECT_EQ(error_string(WFT_STATE_TASK_ERROR, 1), "Unknown error");
}

TEST(WFGlobalErrorString, OfStatesWithoutErrors) {
  EXPECT_EQ(error_string(WFT_STATE_SUCCESS, 0), "Success");
  EXPECT_EQ(error_string(WFT_STATE_ABORTED, 0), "Aborted: the library has stopped");
  EXPECT_EQ(error_string(WFT_STATE_UNDEFINED, 0), "Not finished");
  EXPECT_EQ(error_string(WFT_STATE_TOREPLY, 0), "Not replied yet");
  EXPECT_EQ(error_string(WFT_STATE_NOREPLY, 0), "Ended without a reply");
  EXPECT_EQ(error_string(4711, 0), "Unknown state");
}

#include <gtest/gtest.h>

#include "interop/Origin.h"
#include "support/Program.h"

// Our server, Python's http.client, urllib and ssl as its clients. A script ends with an exception,
// and so with another exit code than 0, when something is not as it should be.

namespace interop_test {
namespace {

using namespace test_support;

ProgramResult python(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"-I", "-c", script};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return test_support::run_program("python3", all, {.stderr_is_output = true});
}

TEST(PythonClient, SaysItsVersion) {
  const ProgramResult result = python("import sys; print('Python', sys.version)", {});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s", result.output.c_str());
}

TEST(PythonClient, RepliesOfAllKindsOverOneConnection) {
  Origin origin;
  const ProgramResult result = python(R"(
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=50)
def ask(method, path, body=None, **more):
    c.request(method, path, body, **more)
    r = c.getresponse()
    return r.status, r.read()
assert ask("GET", "/a") == (200, b"GET /a ")
first = c.sock
assert ask("HEAD", "/bytes/1000") == (200, b"")
assert ask("GET", "/status/204") == (204, b"")
assert ask("GET", "/status/304") == (304, b"")
assert ask("GET", "/chunked") == (200, b"hello world")
assert ask("POST", "/b", "body") == (200, b"POST /b body")
parts = [b"x" * 100000, b"y", b"z" * 5000]
assert ask("PUT", "/chunks", iter(parts), encode_chunked=True,
           headers={"Transfer-Encoding": "chunked"})[0] == 200
assert len(ask("GET", "/bytes/1000000")[1]) == 1000000
assert ask("GET", "/delay?ms=100") == (200, b"late")
assert c.sock is first
)",
                                      {std::to_string(origin.port())});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(PythonClient, Http10EndsWithTheConnection) {
  Origin origin;
  const ProgramResult result = python(R"(
import http.client, sys
class Old(http.client.HTTPConnection):
    _http_vsn, _http_vsn_str = 10, "HTTP/1.0"
c = Old("127.0.0.1", int(sys.argv[1]), timeout=50)
for i in range(3):
    c.request("GET", "/chunked")
    r = c.getresponse()
    assert r.getheader("Transfer-Encoding") is None, r.getheaders()
    assert r.read() == b"hello world"
    assert c.sock is None
)",
                                      {std::to_string(origin.port())});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(origin.used_connections(), 3);
}

// It sends the whole body before it looks for an answer.
TEST(PythonClient, HearsThatItSentTooMuch) {
  struct WFServerParams params = server_test::patient_params();
  params.request_size_limit = 1000;
  params.linger_size_limit = 16 * 1024 * 1024;
  Origin origin(params);
  const ProgramResult result = python(R"(
import http.client, sys
for i in range(20):
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=50)
    c.request("POST", "/same", b"x" * 4000000)
    r = c.getresponse()
    assert r.status == 413, r.status
    r.read()
    c.close()
)",
                                      {std::to_string(origin.port())});
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(PythonClient, PipelinedRequestsAreAnsweredInOrder) {
  Origin origin;
  const ProgramResult result = python(R"(
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=50)
s.sendall(b"".join(b"GET /n%d HTTP/1.1\r\nHost: x\r\n\r\n" % i for i in range(1000)))
s.shutdown(socket.SHUT_WR)
got = b""
while part := s.recv(65536):
    got += part
at = 0
for i in range(1000):
    at = got.index(b"\r\n\r\nGET /n%d " % i, at) + 1
assert got.count(b"HTTP/1.1 200 OK") == 1000
)",
                                      {std::to_string(origin.port())});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(PythonClient, ManyThreadsAtATime) {
  Origin origin;
  const ProgramResult result = python(R"(
import concurrent.futures, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def ask(i):
    return opener.open("http://127.0.0.1:%s/n%d" % (sys.argv[1], i), timeout=50).read()
with concurrent.futures.ThreadPoolExecutor(20) as threads:
    for i, body in enumerate(threads.map(ask, range(200))):
        assert body == b"GET /n%d " % i, body
)",
                                      {std::to_string(origin.port())});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(origin.requests(), 200);
}

TEST(PythonClient, VerifiesOurCertificate) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:localhost"});
  Origin origin(server_test::http_params(), &certificate);
  const ProgramResult result = python(R"(
import http.client, ssl, sys
port, ca = int(sys.argv[1]), sys.argv[2]
trusting = ssl.create_default_context(cafile=ca)
trusting.set_alpn_protocols(["http/1.1"])
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    trusting.minimum_version = trusting.maximum_version = version
    c = http.client.HTTPSConnection("localhost", port, context=trusting, timeout=50)
    for i in range(3):
        c.request("POST", "/a", b"x" * 100000)
        assert c.getresponse().read() == b"POST /a " + b"x" * 100000
    assert c.sock.version() == version.name.replace("_", "."), c.sock.version()
    assert c.sock.selected_alpn_protocol() == "http/1.1"
    c.close()
def refuses(host, context):
    c = http.client.HTTPSConnection(host, port, context=context, timeout=50)
    try:
        c.request("GET", "/")
    except ssl.SSLCertVerificationError as e:
        return True
assert refuses("127.0.0.1", trusting)
assert refuses("localhost", ssl.create_default_context())
)",
                                      {std::to_string(origin.port()), authority.file()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(origin.requests(), 6);
}

// unwrap() sends its goodbye and fails unless it gets ours.
TEST(PythonClient, TlsEndsInOrder) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:localhost"});
  Origin origin(server_test::http_params(), &certificate);
  const ProgramResult result = python(R"(
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
def connect(session=None):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=50)
    return context.wrap_socket(s, server_hostname="localhost", session=session,
                               suppress_ragged_eofs=False)
def ask(s):
    s.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    got = b""
    while part := s.recv(65536):
        got += part
    assert got.endswith(b"GET /x "), got
s = connect()
ask(s)
session = s.session
s.unwrap()
again = connect(session)
assert again.session_reused
ask(again)
)",
                                      {std::to_string(origin.port()), authority.file()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

}  // namespace
}  // namespace interop_test

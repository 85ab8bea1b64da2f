#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "support/RawClient.h"
#include "support/TempDir.h"
#include "support/TutorialProgram.h"

using server_test::HttpReply;
using server_test::RawClient;
using tutorial_test::Program;

namespace {

namespace fs = std::filesystem;

constexpr char kDigits[] = "0123456789";
constexpr char kSecret[] = "outside of the folder";

// The server on a folder of its own, beside which lies a secret.
class FileServer : public testing::Test {
 protected:
  FileServer() {
    fs::create_directories(www("sub"));
    fs::create_directories(www("empty"));
    put(dir_.path("secret.txt"), kSecret);
    put(www("digits.txt"), kDigits);
    program_.emplace("tutorial-09-file_server", std::vector<std::string>{"0", dir_.path("www")});
    port_ = program_->port();
  }
  ~FileServer() override {
    program_->close_stdin();
    EXPECT_EQ(program_->exit_code(), 0);
  }

  std::string www(const std::string& name) const { return dir_.path("www/" + name); }

  // An hour old: a file that has just changed has no validators.
  static void put(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }

  // One exchange on a connection of its own. `fields`: more lines of the header, each with CRLF.
  HttpReply ask(const std::string& method, const std::string& target,
                const std::string& fields = "") const {
    RawClient client(port_);
    return client
        .ask(method + " " + target + " HTTP/1.1\r\nHost: files\r\n" + fields + "\r\n",
             method == "HEAD")
        .value_or(HttpReply());
  }
  HttpReply get(const std::string& target, const std::string& fields = "") const {
    return ask("GET", target, fields);
  }
  // The digits, by their status and what came: "206 234".
  std::string digits(const std::string& fields) const {
    const HttpReply reply = get("/digits.txt", fields);
    return std::to_string(reply.status) + " " + reply.body;
  }
  std::string tag() const { return get("/digits.txt").field("ETag"); }
  std::string date() const { return get("/digits.txt").field("Last-Modified"); }
  void expect_refused(const std::string& target, int status) const {
    const HttpReply reply = get(target);
    EXPECT_EQ(reply.status, status) << target;
    EXPECT_EQ(reply.body.find(kSecret), std::string::npos) << target;
  }

  test_support::TempDir dir_;
  std::optional<Program> program_;
  uint16_t port_ = 0;
};

}  // namespace

// Files ---------------------------------------------------------------------------------------

TEST_F(FileServer, SendsAFileWithItsTypeAndValidators) {
  const HttpReply reply = get("/digits.txt");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, kDigits);
  EXPECT_EQ(reply.field("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(reply.field("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(reply.field("Accept-Ranges"), "bytes");
  EXPECT_EQ(reply.field("ETag").front(), '"');
  EXPECT_EQ(reply.field("ETag").back(), '"');
  EXPECT_EQ(reply.field("Last-Modified").size(), 29U);
}

TEST_F(FileServer, AnswersHeadAsGetWithoutABody) {
  const HttpReply got = get("/digits.txt");
  const HttpReply head = ask("HEAD", "/digits.txt");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.field("Content-Length"), "10");
  for (const char* name : {"ETag", "Last-Modified", "Content-Type", "Accept-Ranges"}) {
    EXPECT_EQ(head.field(name), got.field(name));
  }
}

TEST_F(FileServer, KeepsTheConnection) {
  RawClient client(port_);
  const std::string to_head = "HEAD /digits.txt HTTP/1.1\r\nHost: files\r\n\r\n";
  const std::string to_get = "GET /digits.txt HTTP/1.1\r\nHost: files\r\n\r\n";
  EXPECT_TRUE(client.send(to_head + to_get));
  EXPECT_EQ(client.reply(true).value_or(HttpReply()).status, 200);
  EXPECT_EQ(client.body(), kDigits);
}

TEST_F(FileServer, SendsAnEmptyFile) {
  put(www("nothing"), "");
  const HttpReply reply = get("/nothing");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("Content-Length"), "0");
  EXPECT_EQ(reply.field("Content-Type"), "application/octet-stream");
}

TEST_F(FileServer, SendsWhatASingleReadDoesNotHold) {
  std::string text;
  while (text.size() < 3 * 1024 * 1024 + 7) {
    text += std::to_string(text.size()) + " ";
  }
  put(www("large"), text);
  EXPECT_TRUE(get("/large").body == text);
}

TEST_F(FileServer, RefusesToSendAFileWholeThatIsTooLarge) {
  put(www("huge"), "");
  fs::resize_file(www("huge"), 64 * 1024 * 1024 + 1);
  EXPECT_EQ(get("/huge").status, 403);
  EXPECT_EQ(ask("HEAD", "/huge").status, 403);
}

TEST_F(FileServer, ShortensARangeThatIsTooLarge) {
  put(www("huge"), "");
  fs::resize_file(www("huge"), 64 * 1024 * 1024 + 1);
  const HttpReply reply = get("/huge", "Range: bytes=0-\r\n");
  EXPECT_EQ(reply.status, 206);
  EXPECT_EQ(reply.field("Content-Range"), "bytes 0-67108863/67108865");
  EXPECT_EQ(reply.body.size(), 67108864U);
}

TEST_F(FileServer, DecodesNamesOnceAndLeavesPlus) {
  put(www("a+b c%20.txt"), "odd");
  EXPECT_EQ(get("/a+b%20c%2520.txt").body, "odd");
  EXPECT_EQ(get("/a%20b%20c%2520.txt").status, 404);
}

TEST_F(FileServer, IgnoresTheQuery) {
  EXPECT_EQ(get("/digits.txt?a=../b").body, kDigits);
}

TEST_F(FileServer, TakesAWholeUrlAsTarget) {
  EXPECT_EQ(get("http://files/digits.txt").body, kDigits);
  expect_refused("http://files/../secret.txt", 404);
  expect_refused("files:digits.txt", 400);
}

TEST_F(FileServer, AllowsGetAndHeadOnly) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const HttpReply reply = ask(method, "/digits.txt", "Content-Length: 0\r\n");
    EXPECT_EQ(reply.status, 405);
    EXPECT_EQ(reply.field("Allow"), "GET, HEAD");
  }
}

// Directories ---------------------------------------------------------------------------------

TEST_F(FileServer, RedirectsToTheSlashOfADirectory) {
  const HttpReply reply = get("/sub");
  EXPECT_EQ(reply.status, 301);
  EXPECT_EQ(reply.field("Location"), "/sub/");
}

TEST_F(FileServer, NeverRedirectsToAnotherHost) {
  fs::create_directories(www("\\other.example"));
  EXPECT_EQ(get("/%5Cother.example").field("Location"), "/%5Cother.example/");
  EXPECT_EQ(get("//sub").field("Location"), "");
}

TEST_F(FileServer, SendsTheIndexOfADirectory) {
  put(www("index.html"), "top");
  put(www("sub/index.html"), "below");
  EXPECT_EQ(get("/").body, "top");
  EXPECT_EQ(get("/sub/").body, "below");
  EXPECT_EQ(get("/sub/").field("Content-Type"), "text/html; charset=utf-8");
}

TEST_F(FileServer, DoesNotListADirectory) {
  EXPECT_EQ(get("/empty/").status, 404);
  EXPECT_EQ(get("/").status, 404);
}

TEST_F(FileServer, TakesNoFileForADirectory) {
  EXPECT_EQ(get("/digits.txt/").status, 404);
  fs::create_directories(www("sub/index.html"));
  EXPECT_EQ(get("/sub/").status, 404);
}

// Refusals ------------------------------------------------------------------------------------

TEST_F(FileServer, RefusesDotSegments) {
  expect_refused("/../secret.txt", 404);
  expect_refused("/sub/../../secret.txt", 404);
  expect_refused("/./digits.txt", 404);
  expect_refused("/..", 404);
}

TEST_F(FileServer, RefusesEncodedDotSegments) {
  expect_refused("/%2e%2e/secret.txt", 404);
  expect_refused("/.%2E/secret.txt", 404);
  expect_refused("/%2e/digits.txt", 404);
}

TEST_F(FileServer, RefusesWhatIsEncodedTwice) {
  expect_refused("/%252e%252e/secret.txt", 404);
  expect_refused("/%252e%252e%252fsecret.txt", 404);
}

TEST_F(FileServer, RefusesEncodedSlashes) {
  expect_refused("/..%2fsecret.txt", 400);
  expect_refused("/sub%2Findex.html", 400);
  expect_refused("/%2Fetc/passwd", 400);
}

TEST_F(FileServer, RefusesNullBytes) {
  expect_refused("/digits.txt%00", 400);
  expect_refused("/digits.txt%00.html", 400);
}

TEST_F(FileServer, RefusesBadEncodings) {
  expect_refused("/digits%2", 400);
  expect_refused("/digits%", 400);
  expect_refused("/digits%zz.txt", 400);
}

TEST_F(FileServer, RefusesAbsolutePaths) {
  expect_refused("/" + dir_.path("secret.txt"), 404);
  expect_refused("//digits.txt", 404);
  expect_refused("/sub//index.html", 404);
}

TEST_F(FileServer, TakesBackslashesForLetters) {
  expect_refused("/..\\secret.txt", 404);
  expect_refused("/sub\\..\\..\\secret.txt", 404);
}

TEST_F(FileServer, RefusesLinksOutOfTheFolder) {
  fs::create_symlink(dir_.path("secret.txt"), www("absolute"));
  fs::create_symlink("../secret.txt", www("relative"));
  fs::create_directory_symlink("..", www("up"));
  fs::create_symlink("/proc/self/root", www("root"));
  fs::create_symlink("relative", www("twice"));
  for (const char* target : {"/absolute", "/relative", "/up/secret.txt", "/up/www/digits.txt",
                             "/root/etc/passwd", "/twice"}) {
    expect_refused(target, 404);
  }
}

TEST_F(FileServer, FollowsLinksWithinTheFolder) {
  fs::create_symlink("../digits.txt", www("sub/inside"));
  fs::create_directory_symlink("sub", www("alias"));
  EXPECT_EQ(get("/sub/inside").body, kDigits);
  EXPECT_EQ(get("/alias/inside").body, kDigits);
}

TEST_F(FileServer, RefusesALinkToItself) {
  fs::create_symlink("loop", www("loop"));
  expect_refused("/loop", 404);
}

TEST_F(FileServer, HidesNamesThatBeginWithADot) {
  fs::create_directories(www(".git"));
  put(www(".git/config"), "x");
  put(www(".htpasswd"), "x");
  expect_refused("/.git/config", 404);
  expect_refused("/.htpasswd", 404);
  expect_refused("/%2ehtpasswd", 404);
}

TEST_F(FileServer, DoesNotWaitForAFifo) {
  ASSERT_EQ(::mkfifo(www("fifo").c_str(), 0644), 0);
  expect_refused("/fifo", 404);
}

TEST_F(FileServer, SaysForbiddenWhereTheSystemDoes) {
  put(www("closed"), "x");
  ASSERT_EQ(::chmod(www("closed").c_str(), 0), 0);
  // Nothing is closed to root.
  EXPECT_EQ(get("/closed").status, ::geteuid() == 0 ? 200 : 403);
}

TEST_F(FileServer, DoesNotFindWhatIsNotThere) {
  expect_refused("/none", 404);
  expect_refused("/" + std::string(300, 'n'), 404);
  expect_refused("/digits.txt/none", 404);
}

// Ranges (RFC 9110, 14) -----------------------------------------------------------------------

TEST_F(FileServer, SendsTheRangeAskedFor) {
  EXPECT_EQ(digits("Range: bytes=2-4\r\n"), "206 234");
  EXPECT_EQ(digits("Range: bytes=0-0\r\n"), "206 0");
  EXPECT_EQ(digits("Range: bytes=9-9\r\n"), "206 9");
  EXPECT_EQ(get("/digits.txt", "Range: bytes=2-4\r\n").field("Content-Range"), "bytes 2-4/10");
}

TEST_F(FileServer, SendsFromAByteToTheEnd) {
  EXPECT_EQ(digits("Range: bytes=7-\r\n"), "206 789");
}

TEST_F(FileServer, EndsARangeWithTheFile) {
  EXPECT_EQ(digits("Range: bytes=7-1000\r\n"), "206 789");
  EXPECT_EQ(digits("Range: bytes=7-99999999999999999999999\r\n"), "206 789");
}

TEST_F(FileServer, SendsASuffix) {
  EXPECT_EQ(digits("Range: bytes=-3\r\n"), "206 789");
  EXPECT_EQ(digits("Range: bytes=-1000\r\n"), "206 0123456789");
}

TEST_F(FileServer, TakesTheUnitWithoutCase) {
  EXPECT_EQ(digits("Range: BYTES=2-4\r\n"), "206 234");
}

TEST_F(FileServer, CannotSatisfyARangeBehindTheEnd) {
  for (const char* range : {"10-", "10-20", "99999999999999999999999-", "-0"}) {
    const HttpReply reply = get("/digits.txt", "Range: bytes=" + std::string(range) + "\r\n");
    EXPECT_EQ(reply.status, 416) << range;
    EXPECT_EQ(reply.field("Content-Range"), "bytes */10") << range;
  }
}

TEST_F(FileServer, KnowsNoRangeOfAnEmptyFile) {
  put(www("nothing"), "");
  EXPECT_EQ(get("/nothing", "Range: bytes=0-\r\n").status, 416);
  EXPECT_EQ(get("/nothing", "Range: bytes=-5\r\n").status, 200);
}

TEST_F(FileServer, SendsTheWholeForSeveralRanges) {
  EXPECT_EQ(digits("Range: bytes=0-1,4-5\r\n"), "200 0123456789");
  EXPECT_EQ(digits("Range: bytes=0-1\r\nRange: bytes=4-5\r\n"), "200 0123456789");
}

TEST_F(FileServer, IgnoresARangeThatIsNone) {
  for (const char* range : {"bytes=4-2", "bytes=-", "bytes=a-b", "bytes=1", "bytes 1-2",
                            "bytes=1-2x", "bytes=+1-2", "bytes=--2", "lines=1-2", "bytes="}) {
    EXPECT_EQ(digits("Range: " + std::string(range) + "\r\n"), "200 0123456789") << range;
  }
}

TEST_F(FileServer, IgnoresARangeOfHead) {
  const HttpReply reply = ask("HEAD", "/digits.txt", "Range: bytes=2-4\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("Content-Length"), "10");
}

TEST_F(FileServer, SendsTheRangeOnlyOfTheVersionNamed) {
  EXPECT_EQ(digits("Range: bytes=2-4\r\nIf-Range: " + tag() + "\r\n"), "206 234");
  EXPECT_EQ(digits("Range: bytes=2-4\r\nIf-Range: \"other\"\r\n"), "200 0123456789");
}

TEST_F(FileServer, ComparesIfRangeStrongly) {
  EXPECT_EQ(digits("Range: bytes=2-4\r\nIf-Range: W/" + tag() + "\r\n"), "200 0123456789");
  EXPECT_EQ(digits("Range: bytes=2-4\r\nIf-Range: " + date() + "\r\n"), "200 0123456789");
}

TEST_F(FileServer, SendsAllOfAChangedFileForARangeOfTheOld) {
  const std::string old = tag();
  put(www("digits.txt"), "abcdefghij");
  EXPECT_EQ(digits("Range: bytes=2-4\r\nIf-Range: " + old + "\r\n"), "200 abcdefghij");
}

// Conditions (RFC 9110, 13) -------------------------------------------------------------------

TEST_F(FileServer, SaysNotModifiedToTheTag) {
  const HttpReply reply = get("/digits.txt", "If-None-Match: " + tag() + "\r\n");
  EXPECT_EQ(reply.status, 304);
  EXPECT_EQ(reply.field("ETag"), tag());
  EXPECT_EQ(reply.body, "");
  EXPECT_EQ(ask("HEAD", "/digits.txt", "If-None-Match: " + tag() + "\r\n").status, 304);
}

TEST_F(FileServer, ComparesIfNoneMatchWeakly) {
  EXPECT_EQ(digits("If-None-Match: W/" + tag() + "\r\n"), "304 ");
}

TEST_F(FileServer, FindsTheTagInAList) {
  EXPECT_EQ(digits("If-None-Match: \"a,b\", W/\"c\" , " + tag() + "\r\n"), "304 ");
  EXPECT_EQ(digits("If-None-Match: \"a\"\r\nIf-None-Match: " + tag() + "\r\n"), "304 ");
  EXPECT_EQ(digits("If-None-Match: \"a, " + tag().substr(1) + "\r\n"), "200 0123456789");
  EXPECT_EQ(digits("If-None-Match: \"other\"\r\n"), "200 0123456789");
  EXPECT_EQ(digits("If-None-Match: no tag\r\n"), "200 0123456789");
}

TEST_F(FileServer, SaysNotModifiedToAnyTag) {
  EXPECT_EQ(digits("If-None-Match: *\r\n"), "304 ");
  EXPECT_EQ(get("/none", "If-None-Match: *\r\n").status, 404);
}

TEST_F(FileServer, SaysNotModifiedSinceTheDate) {
  EXPECT_EQ(digits("If-Modified-Since: " + date() + "\r\n"), "304 ");
  EXPECT_EQ(digits("If-Modified-Since: Fri, 31 Dec 2099 23:59:59 GMT\r\n"), "304 ");
  EXPECT_EQ(digits("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "200 0123456789");
}

TEST_F(FileServer, ReadsTheOldFormsOfDates) {
  put(www("old"), "x");
  const std::chrono::system_clock::time_point date =
      std::chrono::sys_days{std::chrono::year_month_day(
          std::chrono::year(1994), std::chrono::month(11), std::chrono::day(6))};
  fs::last_write_time(www("old"), std::chrono::file_clock::from_sys(date));
  EXPECT_EQ(get("/old").field("Last-Modified"), "Sun, 06 Nov 1994 00:00:00 GMT");
  for (const char* same : {"Sunday, 06-Nov-94 00:00:00 GMT", "Sun Nov  6 00:00:00 1994"}) {
    EXPECT_EQ(get("/old", "If-Modified-Since: " + std::string(same) + "\r\n").status, 304) << same;
  }
  for (const char* before : {"Saturday, 05-Nov-94 23:59:59 GMT", "Sat Nov  5 23:59:59 1994"}) {
    EXPECT_EQ(get("/old", "If-Modified-Since: " + std::string(before) + "\r\n").status, 200);
  }
}

TEST_F(FileServer, IgnoresDatesThatAreNone) {
  EXPECT_EQ(digits("If-Modified-Since: tomorrow\r\n"), "200 0123456789");
  EXPECT_EQ(digits("If-Modified-Since: " + date() + "; length=10\r\n"), "200 0123456789");
  EXPECT_EQ(digits("If-Unmodified-Since: yesterday\r\n"), "200 0123456789");
}

TEST_F(FileServer, PrefersTheTagToTheDate) {
  EXPECT_EQ(digits("If-None-Match: \"other\"\r\nIf-Modified-Since: " + date() + "\r\n"),
            "200 0123456789");
  EXPECT_EQ(
      digits("If-Match: " + tag() + "\r\nIf-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
      "200 0123456789");
}

TEST_F(FileServer, FailsThePreconditionOfAnotherVersion) {
  EXPECT_EQ(get("/digits.txt", "If-Match: \"other\"\r\n").status, 412);
  EXPECT_EQ(get("/digits.txt", "If-Match: W/" + tag() + "\r\n").status, 412);
  EXPECT_EQ(digits("If-Match: \"other\", " + tag() + "\r\n"), "200 0123456789");
  EXPECT_EQ(digits("If-Match: *\r\n"), "200 0123456789");
}

TEST_F(FileServer, FailsWhenItWasModifiedSince) {
  EXPECT_EQ(get("/digits.txt", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n").status,
            412);
  EXPECT_EQ(digits("If-Unmodified-Since: " + date() + "\r\n"), "200 0123456789");
}

TEST_F(FileServer, ChecksMatchBeforeNoneMatchBeforeRange) {
  EXPECT_EQ(get("/digits.txt", "If-Match: \"other\"\r\nIf-None-Match: *\r\n").status, 412);
  EXPECT_EQ(digits("If-None-Match: " + tag() + "\r\nRange: bytes=2-4\r\n"), "304 ");
  EXPECT_EQ(digits("If-None-Match: " + tag() + "\r\nRange: bytes=99-\r\n"), "304 ");
  EXPECT_EQ(digits("If-Match: " + tag() + "\r\nRange: bytes=2-4\r\n"), "206 234");
}

TEST_F(FileServer, ChangesTheTagWithTheFile) {
  const std::string old = tag();
  // The new file has the size and the time of modification of the old one, as after cp -p.
  const auto modified = fs::last_write_time(www("digits.txt"));
  put(www("digits.txt"), "9876543210");
  fs::last_write_time(www("digits.txt"), modified);
  EXPECT_NE(tag(), old);
}

TEST_F(FileServer, GivesNoValidatorToAFileThatHasJustChanged) {
  // Again, should the machine take too long to ask.
  HttpReply reply;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (auto begin = now();; begin = now()) {
    std::ofstream(www("fresh")) << "x";
    reply = get("/fresh");
    if (now() - begin < std::chrono::milliseconds(900)) {
      break;
    }
  }
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("ETag"), "");
  EXPECT_EQ(reply.field("Last-Modified"), "");
}

TEST_F(FileServer, GivesNoValidatorToAFileFromTheFuture) {
  put(www("future"), "x");
  fs::last_write_time(www("future"), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(get("/future").field("ETag"), "");
  EXPECT_EQ(get("/future").field("Last-Modified"), "");
  EXPECT_EQ(get("/future", "If-Match: *\r\n").status, 200);
  EXPECT_EQ(get("/future", "If-Match: \"a\"\r\n").status, 412);
}

#include <execinfo.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/Certificates.h"
#include "support/Loopback.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// glibc's free() of what becomes 64 KiB with the free memory around it merges every small free
// block of the heap, which takes milliseconds after many small ones were freed. So nobody asks
// malloc for blocks of that size, or gives such back, while the library works: every malloc(),
// realloc() and free() of this program passes through here.

namespace {

constexpr size_t kLarge = size_t{64} * 1024;

std::atomic<bool> armed{false};
std::atomic<int> large{0};
void* where[32];
std::atomic<int> where_count{0};

[[maybe_unused]] void note(size_t size) {
  if (size >= kLarge && armed.load(std::memory_order_relaxed)) {
    if (large++ == 0) {
      armed = false;  // backtrace() may allocate
      where_count = ::backtrace(where, 32);
      armed = true;
    }
  }
}

}  // namespace

#if !defined(WORKFLOW_ADDRESS_SANITIZER) && !defined(WORKFLOW_THREAD_SANITIZER)

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) {
  note(size);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note(count * size);
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  note(size);
  note(memory ? ::malloc_usable_size(memory) : 0);
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}
void free(void* memory) {
  note(memory ? ::malloc_usable_size(memory) : 0);
  __libc_free(memory);
}
}

#endif

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using test_support::Tally;

class LargeBlocks : public testing::Test {
 protected:
  void SetUp() override {
    if (test_support::kSanitized) {
      GTEST_SKIP() << "the sanitizer's allocator is not glibc's";
    }
  }

  // Nobody may take or free a large block meanwhile. What the library makes once, when it starts
  // and for the first timer with a name, is there.
  template <class Work>
  void expect_none_while(Work&& work) {
    Tally first;
    WFTimer::create(milliseconds(1), {"first"}, [&first](WFTimerTask*) { first.add(); })->start();
    ASSERT_TRUE(first.wait_for(1));
    large = 0;
    armed = true;
    work();
    armed = false;
    if (large > 0) {
      ::backtrace_symbols_fd(where, where_count, STDERR_FILENO);
    }
    EXPECT_EQ(large, 0) << "the first one is above";
  }
};

TEST_F(LargeBlocks, NoneWhileTheQueueOfTimersGrowsAndShrinks) {
  Tally fired;
  expect_none_while([&fired] {
    for (int i = 0; i < 50'000; i++) {
      WFTimer::create(milliseconds(i / 100), [&fired](WFTimerTask*) { fired.add(); })->start();
    }
    EXPECT_TRUE(fired.wait_for(50'000));
  });
}

TEST_F(LargeBlocks, NoneWhileNamesComeAndGo) {
  constexpr size_t kNames = 600'000;  // a table that doubled would have 64 KiB in each shard
  Tally ended;
  expect_none_while([&ended] {
    for (size_t i = 0; i < kNames; i++) {
      WFTimer::create(hours(1), {"name " + std::to_string(i)}, [&ended](WFTimerTask*) {
        ended.add();
      })->start();
    }
    for (size_t i = 0; i < kNames; i++) {
      ASSERT_EQ(WFTaskFactory::cancel_by_name("name " + std::to_string(i)), 1);
    }
    EXPECT_TRUE(ended.wait_for(kNames));
  });
}

TEST_F(LargeBlocks, NoneWhileHandlesComeAndGo) {
  Tally ended;
  std::vector<WFTimerHandle> handles(100'000);
  expect_none_while([&ended, &handles] {
    for (WFTimerHandle& handle : handles) {
      WFTimerTask* const task = WFTimer::create(hours(1), [&ended](WFTimerTask*) { ended.add(); });
      handle = WFTimer::handle_of(task);
      task->start();
    }
    for (const WFTimerHandle& handle : handles) {
      EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
    }
    EXPECT_TRUE(ended.wait_for(handles.size()));
  });
}

// Requests and replies of less than that, from the accept to the end of many connections.
TEST_F(LargeBlocks, NoneWhileAServerAnswersItsClients) {
  constexpr size_t kRounds = 20;
  constexpr size_t kAtOnce = 100;
  const std::string body(48 * 1024, 'x');
  WFHttpServer server([&body](WFHttpTask* task) {
    const char* uri = task->get_req()->get_request_uri();
    if (std::string(uri) == "/small") {
      task->get_resp()->append_output_body("hello");
    } else {
      task->get_resp()->append_output_body(body);
    }
  });
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string base = "http://127.0.0.1:" + std::to_string(test_support::port_of(server));
  Tally ended;
  std::atomic<size_t> answered{0};
  expect_none_while([&] {
    for (size_t round = 0; round < kRounds; round++) {
      for (size_t i = 0; i < kAtOnce; i++) {
        const bool small = i % 4 > 0;
        WFHttpTask* const task = WFTaskFactory::create_http_task(
            base + (small ? "/small" : "/large"), 0, 0, [&](WFHttpTask* done) {
              answered += done->get_state() == WFT_STATE_SUCCESS;
              ended.add();
            });
        if (!small) {
          task->get_req()->set_method("POST");
          task->get_req()->append_output_body(body);
        }
        task->start();
      }
      ASSERT_TRUE(ended.wait_for((round + 1) * kAtOnce));
    }
    server.stop();
  });
  EXPECT_EQ(answered, kRounds * kAtOnce);
}

// Whoever asks for "/tasks" or "/writes" gets 400 KB as a stream, in pieces of 8,000 or 40,000
// bytes; otherwise a body of 50,000.
constexpr size_t kPieces = 50;
constexpr size_t kPiece = 8000;
constexpr size_t kWrites = 10;
constexpr size_t kWrite = 40'000;
constexpr size_t kStreamed = kPieces * kPiece;

void answer_large(WFHttpTask* task) {
  const std::string uri = task->get_req()->get_request_uri();
  if (uri == "/tasks") {
    WFHttpStream stream = WFHttpStream::begin(task);
    for (size_t i = 0; i < kPieces; i++) {
      series_of(task)->push_back(stream.create_write_task(std::string(kPiece, 'x'), nullptr));
    }
  } else if (uri == "/writes") {
    WFHttpStream stream = WFHttpStream::begin(task);
    const std::string piece(kWrite, 'x');
    for (size_t i = 0; i < kWrites; i++) {
      stream.write(piece.data(), piece.size());
    }
  } else {
    task->get_resp()->append_output_body(std::string(50'000, 'x'));
  }
}

TEST_F(LargeBlocks, NoneWhileStreamsAreWrittenAndReadInChunks) {
  constexpr size_t kAtOnce = 10;
  constexpr size_t kRounds = 4;
  WFHttpServer server(answer_large);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string base = "http://127.0.0.1:" + std::to_string(test_support::port_of(server));
  for (const char* const path : {"/tasks", "/writes"}) {
    Tally ended;
    std::atomic<size_t> bytes{0};
    expect_none_while([&] {
      for (size_t round = 1; round <= kRounds; round++) {
        for (size_t i = 0; i < kAtOnce; i++) {
          WFHttpChunkedClient::create_chunked_task(
              base + path, 0,
              [&bytes](WFHttpChunkedTask* task) {
                const void* data = nullptr;
                size_t size = 0;
                task->get_chunk()->get_chunk_data(&data, &size);
                bytes += size;
              },
              [&ended](WFHttpChunkedTask*) { ended.add(); })
              ->start();
        }
        ASSERT_TRUE(ended.wait_for(round * kAtOnce));
      }
    });
    EXPECT_EQ(bytes, kRounds * kAtOnce * kStreamed) << path;
  }
  server.stop();
}

TEST_F(LargeBlocks, NoneWhileTlsCarriesMessages) {
  test_support::Authority authority;
  const auto certificate = authority.issue({"IP:127.0.0.1"});
  WFHttpServer server(answer_large);
  ASSERT_EQ(
      server.start("127.0.0.1", 0, certificate.cert_file.c_str(), certificate.key_file.c_str()), 0);
  ASSERT_EQ(::SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str()),
            1);
  const std::string url =
      "https://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  Tally ended;
  std::atomic<size_t> answered{0};
  const auto fetch = [&] {
    constexpr size_t kAtOnce = 20;
    const size_t before = ended.count();
    for (size_t i = 0; i < kAtOnce; i++) {
      WFTaskFactory::create_http_task(url, 0, 0, [&](WFHttpTask* done) {
        answered += done->get_state() == WFT_STATE_SUCCESS;
        ended.add();
      })->start();
    }
    ASSERT_TRUE(ended.wait_for(before + kAtOnce));
  };
  fetch();  // what OpenSSL allocates once
  expect_none_while([&fetch] {
    fetch();
    fetch();
  });
  EXPECT_EQ(answered, ended.count());
  server.stop();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  void* frame;
  ::backtrace(&frame, 1);  // it allocates once
  return RUN_ALL_TESTS();
}

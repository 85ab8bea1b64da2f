// Shows: a pipeline. Each file is read, its words are counted on a computing thread, and the result
// is written; and however many files there are, three of them are in it at a time.
//
// Try:   tutorial-28-pipeline FILE...
#include <atomic>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "workflow/WFCoroutine.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

namespace {

constexpr size_t kAtOnce = 3;
constexpr size_t kMax = 1 << 20;  // bytes of a file

size_t count_words(const std::string& text) {
  size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    words += !is_space && !inside ? 1 : 0;
    inside = !is_space;
  }
  return words;
}

// What is read stays in this frame. The function on the computing thread may use it, because the
// coroutine goes on only when the function has returned.
WFCo<std::string> describe(const char* path) {
  std::string text(kMax, '\0');
  const auto read =
      co_await WFTaskFactory::create_pread_task(path, text.data(), text.size(), 0, nullptr);
  if (!read) co_return WFGlobal::get_error_string(read.state, read.error);
  text.resize(static_cast<size_t>(*read.value));
  auto counted = co_await wf::go("words", count_words, std::cref(text));
  co_return std::to_string(std::move(counted).get()) + " words";
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::span<char*> paths(argv + 1, static_cast<size_t>(argc - 1));
  std::atomic<size_t> inside{0};
  std::atomic<size_t> most{0};
  const auto one = [&inside, &most](const char* path) -> WFCo<std::string> {
    const size_t now = ++inside;
    for (size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::string description = co_await describe(path);
    inside--;
    co_return description;
  };
  // The results are in the order of the files, whichever was done first.
  const auto all = [&]() -> WFCo<std::vector<std::string>> {
    co_return co_await wf::each(paths, kAtOnce, one);
  };
  const std::vector<std::string> descriptions = wf::wait(all);
  for (size_t i = 0; i < descriptions.size(); i++) {
    std::printf("%s: %s\n", paths[i], descriptions[i].c_str());
  }
  std::printf("at most %zu at a time\n", most.load());
}

#include "store/SqliteNews.h"

namespace workflow {

void SqliteNews::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  stops_ = false;
  // News that other processes announce from now on count, even before the thread runs.
  const uint32_t word = queue_.page().news;
  const uint32_t others = word - own_;
  thread_.start("wf-store-news", [this, word, others] { listen(word, others); });
}

void SqliteNews::stop() {
  if (thread_.joinable()) {
    stops_ = true;
    tell();
    thread_.join();
  }
}

void SqliteNews::tell() {
  own_++;
  queue_.page().news++;
  SqliteQueue::wake(queue_.page().news);
}

void SqliteNews::listen(uint32_t word, uint32_t told) {
  std::atomic<uint32_t>& news = queue_.page().news;
  while (!stops_) {
    SqliteQueue::wait(news, word, kMaxSleepMs);
    word = news;
    const uint32_t others = word - own_;
    if (static_cast<int32_t>(others - told) > 0) {
      told = others;
      if (!stops_) {
        changed_();
      }
    }
  }
}

}  // namespace workflow

#include "store/SqliteNews.h"

namespace workflow {

void SqliteNews::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  stops_ = false;
  thread_.start("wf-store-news", [this] { listen(); });
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

void SqliteNews::listen() {
  std::atomic<uint32_t>& news = queue_.page().news;
  uint32_t word = news;
  uint32_t told = word - own_;
  while (!stops_) {
    SqliteQueue::wait(news, word, kMostSleepMs);
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

#include "store/RedisMasters.h"

namespace workflow {

RedisMasters& RedisMasters::process() {
  static RedisMasters& masters = *new RedisMasters;
  return masters;
}

std::string RedisMasters::key_of(const RedisUrl& url) {
  std::string key = url.master_name;
  for (const RedisUrl::Server& sentinel : url.sentinels) {
    key += '\0' + sentinel.host + '\0' + std::to_string(sentinel.port);
  }
  return key;
}

bool RedisMasters::find(const RedisUrl& url, RedisUrl::Server* master) const {
  const std::string key = key_of(url);
  MutexLock lock(mutex_);
  const auto found = masters_.find(key);
  if (found == masters_.end()) return false;
  *master = found->second;
  return true;
}

void RedisMasters::set(const RedisUrl& url, const RedisUrl::Server& master) {
  const std::string key = key_of(url);
  MutexLock lock(mutex_);
  masters_[key] = master;
}

void RedisMasters::forget(const RedisUrl& url) {
  const std::string key = key_of(url);
  MutexLock lock(mutex_);
  masters_.erase(key);
}

}  // namespace workflow

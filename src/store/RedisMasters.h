#pragma once

#include <map>
#include <string>

#include "store/RedisUrl.h"
#include "util/Mutex.h"

namespace workflow {

// The masters that Sentinels have named, so that not every command has to ask. What is found here
// may be out of date: the server is asked for its role on each new connection, and a task that
// finds out forgets the master.
//
// Thread-safe.
class RedisMasters {
 public:
  // The one instance of the process. Never destroyed, because tasks may outlive static objects.
  static RedisMasters& process();

  bool find(const RedisUrl& url, RedisUrl::Server* master) const;
  void set(const RedisUrl& url, const RedisUrl::Server& master);
  void forget(const RedisUrl& url);

 private:
  // Made of the Sentinels and the master's name. The user and the password are not part of it.
  static std::string key_of(const RedisUrl& url);

  mutable Mutex mutex_;
  std::map<std::string, RedisUrl::Server> masters_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

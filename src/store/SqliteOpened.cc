#include "store/SqliteOpened.h"

#include <pthread.h>

#include <cerrno>
#include <map>
#include <new>

namespace workflow {

namespace {

struct Opened {
  int forks = 0;  // when it was opened
  int count = 0;  // how many stores there are for it
  bool is_owned = false;
};

// What the process has open. Locked over fork(2), so that the child finds it whole.
struct Registry {
  Registry() {
    ::pthread_atfork([] { registry().mutex.native().lock(); },
                     [] { registry().mutex.native().unlock(); },
                     [] {
                       registry().forks++;
                       // The thread that holds it, if any, has stayed with the parent.
                       new (&registry().creation) Mutex;
                       registry().mutex.native().unlock();
                     });
  }

  // Never destroyed: stores may be closed when the process ends.
  static Registry& registry() {
    static auto* const registry = new Registry;
    return *registry;
  }

  Mutex mutex;
  std::map<std::string, Opened> files WF_GUARDED_BY(mutex);
  // In a child of fork(2), while it has no other thread, the one changes, and the other is
  // constructed anew.
  int forks = 0;
  Mutex creation;
};

}  // namespace

int SqliteOpened::enter(const std::string& path, bool owns) {
  leave();
  Registry& registry = Registry::registry();
  MutexLock lock(registry.mutex);
  Opened& opened = registry.files[path];
  if (opened.count > 0 && opened.forks != registry.forks) return ECHILD;
  if (opened.count > 0 && (owns || opened.is_owned)) return EBUSY;
  opened.is_owned = owns;
  opened.forks = registry.forks;
  opened.count++;
  path_ = path;
  forks_ = registry.forks;
  return 0;
}

void SqliteOpened::leave() {
  if (path_.empty()) return;
  Registry& registry = Registry::registry();
  MutexLock lock(registry.mutex);
  const auto found = registry.files.find(path_);
  if (forks_ == registry.forks && --found->second.count == 0) {
    registry.files.erase(found);
  }
  path_.clear();
}

Mutex& SqliteOpened::creation() {
  return Registry::registry().creation;
}

}  // namespace workflow

#pragma once

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

namespace coherence {

// The functions of the C library that the model interposes.
struct Real {
  static const Real& functions();

  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  int (*join)(pthread_t, void**);
  int (*lock)(pthread_mutex_t*);
  int (*try_lock)(pthread_mutex_t*);
  int (*unlock)(pthread_mutex_t*);
  int (*clock_gettime)(clockid_t, timespec*);
  int (*nanosleep)(const timespec*, timespec*);
  int (*epoll_wait)(int, epoll_event*, int, int);
  int (*timerfd_settime)(int, int, const itimerspec*, itimerspec*);
  ssize_t (*write)(int, const void*, size_t);
  int (*sched_yield)();
};

}  // namespace coherence

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>

namespace workflow {

// What one thread may learn of another one of the process.

// The processor time that the thread with this clock has used, see pthread_getcpuclockid(3); 0 if
// it has ended.
int64_t thread_cpu_ns(clockid_t clock);

// Returns false if the thread with this number (gettid(2)) runs or waits for a processor. Returns
// true if it sleeps in the kernel, and also if it has ended or its state cannot be read. Costs some
// 10 µs.
bool thread_sleeps(pid_t thread);

}  // namespace workflow

#pragma once

namespace workflow {

// How many processors the calling thread may use (sched_getaffinity(2)); at least one. A quota of a
// control group is not a number of processors and does not count.
int usable_processors();

}  // namespace workflow

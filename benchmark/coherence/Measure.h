#pragma once

#include <cstddef>
#include <cstdint>

// What programs use whose accesses are counted. None of these functions makes an access that
// counts.
namespace coherence {

// Takes from the command line: --seed=N, --transfer-ns=N, and --hold-ns=N, for how long a line
// stays with a core to which it has just come.
void configure(int argc, char** argv);

// Counts begin at zero here.
void begin_counting();

struct Total {
  uint64_t accesses;
  uint64_t read_modify_writes;
  uint64_t transfers;
  int64_t ns;            // of the machine's time
  uint64_t of_one_line;  // transfers of the line that has most
};
// What all threads did since begin_counting().
Total total();

// Prints what one of `operations` has cost since begin_counting(): one line for the row, one for
// the mutex that was locked longest, and one for each of the lines that change hands most, and one
// for each of the functions that make lines do so.
void report(const char* row, size_t threads, size_t pollers, size_t operations);

// Waits for other threads, and tells them, without an access. All that wait at a time wait for the
// same count.
class Gate {
 public:
  // Counts one, and wakes the threads that wait when there are as many as they wait for.
  void arrive();
  void wait_for(size_t count);

 private:
  size_t arrived_ = 0;
  size_t awaited_ = SIZE_MAX;
};

}  // namespace coherence

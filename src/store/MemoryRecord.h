#pragma once

namespace workflow {

// The first byte of each record of a journal, which says what the rest of it is.
struct MemoryRecord {
  static constexpr char kTimer = 'T';    // everything about a timer
  static constexpr char kMove = 'M';     // what has changed of a timer: all but what was stored
  static constexpr char kErase = 'D';    // a timer is gone, and is not among the ended ones
  static constexpr char kEnded = 'E';    // a timer has ended, and is gone unless it has failed
  static constexpr char kAnswer = 'A';   // the answer to a request
  static constexpr char kSession = 'S';  // what is known of a session besides its answers
  static constexpr char kDropped = 'X';  // a session is gone with its answers
};

}  // namespace workflow

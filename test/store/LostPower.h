#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/RedisServer.h"
#include "support/SyncNote.h"

// A redis-server whose machine loses its power: of the files of its log only that is left which was
// synced. A kill alone leaves what the system has in memory.

namespace store_test {

// For RedisServer::Options::environment, so that it is known what was synced. `more` is another
// variable of redis/SyncNotes.cc.
inline std::vector<std::string> with_sync_notes(const std::string& more = "") {
  std::vector<std::string> environment = {std::string("LD_PRELOAD=") + REDIS_SYNC_NOTES};
  if (!more.empty()) {
    environment.push_back(more);
  }
  return environment;
}

inline redis_test::SyncNote read_note(const std::string& file) {
  redis_test::SyncNote note;
  std::ifstream notes(file + redis_test::kSyncNoteEnding, std::ios::binary);
  if (!notes.read(reinterpret_cast<char*>(&note), sizeof(note))) return {};
  return note;
}
inline void write_note(const std::string& file, const redis_test::SyncNote& note) {
  std::ofstream notes(file + redis_test::kSyncNoteEnding, std::ios::binary);
  notes.write(reinterpret_cast<const char*>(&note), sizeof(note));
}

inline std::vector<std::string> files_of_the_log(const redis_test::RedisServer& server) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(server.folder() + "/appendonlydir")) {
    if (!entry.path().string().ends_with(redis_test::kSyncNoteEnding)) {
      files.push_back(entry.path().string());
    }
  }
  return files;
}

// Whether the server syncs its log each second, as it should: what the last sync has found was
// written so short a time ago. What the last loss of power has left counts as synced then.
inline bool is_synced_each_second(const redis_test::RedisServer& server) {
  int64_t began_ns = 0;
  for (const std::string& file : files_of_the_log(server)) {
    if (file.ends_with(".incr.aof")) {
      began_ns = std::max(began_ns, read_note(file).began_ns);
    }
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(began_ns) < std::chrono::milliseconds(1200);
}

// Takes away what a server that has ended had not synced: all of a file without a note. Returns how
// many bytes that were.
inline uintmax_t cut_to_what_was_synced(redis_test::RedisServer& server) {
  uintmax_t lost = 0;
  for (const std::string& file : files_of_the_log(server)) {
    const uintmax_t size = std::filesystem::file_size(file);
    const uintmax_t left = std::min(size, static_cast<uintmax_t>(read_note(file).bytes));
    std::filesystem::resize_file(file, left);
    lost += size - left;
  }
  if (lost > 0) {
    server.repair_log();  // which may make it shorter still
  }
  for (const std::string& file : files_of_the_log(server)) {
    redis_test::SyncNote note = read_note(file);
    note.bytes = static_cast<int64_t>(std::filesystem::file_size(file));
    note.began_ns =
        std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    write_note(file, note);
  }
  return lost;
}

// Ends a server as a loss of power would, and starts it again.
inline void lose_power(redis_test::RedisServer& server) {
  server.signal(SIGKILL);
  server.stop();
  cut_to_what_was_synced(server);
  server.start();
}

}  // namespace store_test

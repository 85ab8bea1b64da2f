#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/RedisStoreNodes.h"
#include "store/RedisStorePlace.h"
#include "workflow/RedisMessage.h"

namespace workflow {

// Opens the shards of a store, or creates them. Opening a shard records the server it is on. On
// another server than before, a shard refuses all requests (NEWSERVER) until it has been opened
// there, which raises its epoch. A shard also refuses the requests of a process that knows of a
// higher number than the shard has given out, until that process has opened it again: the server
// has lost the end of its data. It was a replica meanwhile, for instance, and connections to it
// have lived on.
//
// Plain data, and functions that block.
struct RedisStoreOpening {
  std::string id;  // of the store
  size_t shards = 0;
  // How far each shard was, and the highest number that it had given out, as far as this process
  // knows. See RedisStoreScripts.h.
  std::vector<int64_t> progress;
  std::vector<int64_t> last;
  bool has_lost = false;  // some shard was not so far any more when it was opened again

  // Opens all shards. If `id` is set already, the store was open before: it must still be there and
  // have that id. Otherwise this sets `id`, and creates the store if it is missing and `create` is
  // true. `time` and `session` are passed to the scripts as they take them. Returns 0, or an errno
  // value and a message of one line.
  int open(RedisStoreNodes& nodes, const RedisStorePlace& place, bool create,
           const std::string& time, const std::string& session, size_t remembered,
           std::string* message);
  // Opens one shard again, whose server has changed or has lost something. `node`: where it is now,
  // as far as is known.
  int open_again(RedisStoreNodes& nodes, const RedisStorePlace& place, size_t shard,
                 RedisStoreNode& node, const std::string& time, std::string* message);

 private:
  // Where and how it is opened.
  struct Way;

  int open_first(const Way& way, bool create, bool* complete, std::string* message);
  int open_others(const Way& way, bool complete, std::string* message);
  void note(size_t shard, const protocol::RedisValue& opened);
};

}  // namespace workflow

#pragma once

#include <cstddef>
#include <string>

#include "store/RedisStoreLink.h"
#include "store/RedisStorePlace.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// What a store has learnt about its server and its data when it connected. Plain data.
struct RedisStoreServer {
  std::string id;  // of the store
  size_t shards = 0;
  WFStoreReceipt receipt;

  // Reads the configuration of the server, and opens or makes the store. `known_id`: the id of the
  // store, if it was open before: then it must be there. `time`: as the scripts take it. Returns 0
  // or an errno value, and then a message of one line.
  int open(RedisStoreLink& link, const RedisStorePlace& place, const std::string& known_id,
           bool create, const std::string& time, std::string* message);

 private:
  int read_configuration(RedisStoreLink& link, std::string* message);
  int open_shards(RedisStoreLink& link, const RedisStorePlace& place, const std::string& known_id,
                  bool create, const std::string& time, std::string* message);

  std::string identity_;  // of the server, and of what it has been given to keep
};

// The command that runs a script with the keys of a shard.
std::string redis_store_command(const std::string& how, const std::string& script,
                                const RedisStorePlace& place, size_t shard,
                                const std::vector<std::string>& arguments);

// What an error of the server means.
struct RedisStoreError {
  int error = 0;
  bool in_doubt = false;  // the script may have done something
  static RedisStoreError of(const std::string& text);
};

}  // namespace workflow

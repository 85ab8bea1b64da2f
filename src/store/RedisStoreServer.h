#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/RedisStoreLink.h"
#include "store/RedisStorePlace.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// What a store has learnt about one of its servers.
struct RedisStoreServer {
  // Identifies the process of the server and the history of its data. It changes when the data may
  // have gone back to an earlier state: after a restart, and when a replica has become a master. It
  // also changes when the server gets its first replica.
  std::string identity;
  // What an answer of this server survives. While a log is being rewritten, it counts if it counted
  // when this was read before, and nobody has changed a setting since. Otherwise it may be the
  // first log, which counts for nothing before it is whole. Unknown after learn() has failed.
  WFStoreReceipt receipt;

  // Reads the configuration, and refuses a server that cannot keep a store. Returns 0, or an errno
  // value and a message of one line.
  int read(RedisStoreLink& link, RedisStorePlace::Kind kind, std::string* message);

  // The same in two steps: what is asked, and what the replies say.
  std::vector<std::string> questions() const;
  int learn(const RedisStoreLink& link, std::span<const RedisStoreLink::Reply> replies,
            RedisStorePlace::Kind kind, std::string* message);

 private:
  // What INFO commandstats has said, INFO, and CONFIG GET.
  struct Said {
    std::string commands;
    std::string info;
    protocol::RedisValue settings;
  };

  // Messages do not name the server.
  int learn_from(const Said& said, RedisStorePlace::Kind kind, std::string* message);
  void read_receipt(const Said& said);

  // What the server has counted of the commands that change settings or what it has counted. It is
  // another text after each of these.
  std::string changes_;
  bool hides_settings_ = false;
};

// What an error of the server means.
struct RedisStoreError {
  int error = 0;
  bool in_doubt = false;  // the script may have done something
  static RedisStoreError of(const std::string& text);
};

// Why a server has given no usable reply, with a message that names it; 0 if it has given one.
int redis_store_failure(const RedisStoreLink& link, const RedisStoreLink::Reply& reply,
                        std::string* message);

// The number in an element of an array, in decimal digits; 0 if there is none.
int64_t redis_store_number(const protocol::RedisValue& array, size_t element);

// The value of a line "name:value" of what INFO says; empty if there is none.
std::string redis_info_field(const std::string& info, const std::string& name);

// The command that runs a script with the keys of a shard.
std::string redis_store_command(const std::string& how, const std::string& script,
                                const RedisStorePlace& place, size_t shard,
                                const std::vector<std::string>& arguments);

}  // namespace workflow

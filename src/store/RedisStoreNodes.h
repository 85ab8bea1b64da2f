#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/RedisRedirection.h"
#include "store/RedisServerClock.h"
#include "store/RedisStoreLink.h"
#include "store/RedisStorePlace.h"
#include "store/RedisStoreServer.h"
#include "store/RedisUrl.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// A server that keeps shards of a store, and the connection to it.
struct RedisStoreNode {
  explicit RedisStoreNode(const RedisUrl& its_url) : url(its_url), link(its_url) {}

  const RedisUrl url;
  RedisStoreLink link;
  RedisStoreServer about;
  RedisServerClock clock;
  bool has_shards = false;   // see set_shards()
  bool was_used = false;     // since begin()
  bool has_replicas = true;  // enough of them had everything when they were waited for
  int64_t read_us = 0;       // when it was asked last for `about`, by the monotonic clock
};

// The masters of a store, each with a connection, and which shard is where: one server, the master
// that Sentinels name, or the masters of a Cluster.
//
// 1. A command that is refused because its slot moves or is elsewhere (MOVED, ASK, TRYAGAIN,
//    CLUSTERDOWN) has not been executed. It is sent again, to the node that has the slot, for at
//    most kPatienceUs.
// 2. A server that replies after a silence may have been replaced without knowing it. Its replies
//    count only once is_still_right() has confirmed that it is still a master. With any reasonable
//    setting a failover takes longer than RedisStoreLink::kSilenceUs.
// 3. Somebody may change the settings of a server. The questions about them go out with the
//    scripts, at most once a second, so they cost no round trip of their own. A server that gets no
//    script is not asked, and does not count.
// 4. When one connection ends, all of them are ended. connect() makes new ones.
//
// Used by one thread at a time. Blocks.
class RedisStoreNodes {
 public:
  // What a shard is asked.
  struct Question {
    size_t shard = 0;
    // Encodes what is sent to a server. Called for each attempt.
    std::function<std::string(const RedisStoreNode&)> command;
    RedisStoreLink::Reply reply;
    RedisStoreNode* node = nullptr;  // which has replied
  };

  static constexpr int64_t kPatienceUs = 2'000'000;

  explicit RedisStoreNodes(const RedisStorePlace& place) : place_(place) {}

  // Finds the masters, connects to them, and reads what they are. Returns 0 or an errno value, and
  // then a message of one line.
  int connect(std::string* message);
  void close();

  void ask(std::span<Question> questions);
  void ask(Question& question) { ask(std::span(&question, 1)); }

  const std::vector<std::unique_ptr<RedisStoreNode>>& all() const { return nodes_; }
  RedisStoreNode& of_shard(size_t shard);
  // Says how many shards there are. From then on it is known which nodes have some.
  void set_shards(size_t shards);

  // From here on the following functions look at what was asked.
  void begin();
  // Whether a server that was used has replied after a silence, now or earlier, and
  // is_still_right() has not found since then that it is a master.
  bool was_silent() const;
  // If so, asks the Sentinels or nodes that know whether the servers that were used are masters,
  // and then the servers whether they still are what they were.
  bool is_still_right();
  // What is wrong after is_still_right() has returned false, in one line.
  std::string why_not_right() const;
  // Why nothing more may be asked before the next connect(): a server may drop timers now, or has
  // not said what its settings are. Returns 0, or an errno value and a message of one line.
  int refusal(std::string* message) const;
  // Waits until as many replicas as the place says have what the servers know that were used, or
  // for a moment. Returns what an answer survives: the least of what it does on each
  // server that has shards or was used.
  WFStoreReceipt receipt(bool waits);

 private:
  // One question under way.
  struct Attempt {
    Question* question = nullptr;
    RedisStoreNode* node = nullptr;
    bool asking = false;  // behind ASKING
    int hops = 0;
  };
  // A server to which a redirection leads, and to which no connection could be made.
  struct Unreachable {
    RedisUrl::Server server;
    int error = 0;
    std::string message;
  };
  // The settings of a server are read again.
  struct Look {
    RedisStoreNode* node = nullptr;
    size_t first = 0;  // of its questions
    size_t count = 0;
  };

  static constexpr int kReplicasMs = 1000;
  static constexpr int kAbsentReplicasMs = 50;

  static constexpr int kMaxChecks = 3;

  // How long the servers that were used are waited for: as long as they are masters.
  RedisStoreLink::Patience patience();
  bool check_once();
  bool are_still_masters();
  RedisStoreNode* node_at(const RedisUrl::Server& server);
  // Connects to a server that is not known yet. Null with an error and a message.
  RedisStoreNode* add_node(const RedisUrl& url, int* error, std::string* message);
  // Returns the node that a redirection names; null if it cannot be reached, and then `reply` says
  // why. A server that is among the unreachable ones is not tried again.
  RedisStoreNode* follow(const RedisUrl::Server& server, std::vector<Unreachable>* unreachable,
                         RedisStoreLink::Reply* reply);
  void ask_once(std::span<Attempt> attempts);
  std::vector<Look> add_looks(std::span<const Attempt> attempts,
                              std::vector<RedisStoreLink::Question>* questions);
  void take_look(RedisStoreNode& node, std::span<const RedisStoreLink::Reply> replies);
  // Decides what follows from a reply. Returns whether it is asked again, `*pauses`: not at once.
  bool must_retry(Attempt& attempt, std::vector<Unreachable>* unreachable, bool* pauses);
  size_t slot_of(size_t shard) const;

  const RedisStorePlace& place_;
  std::vector<std::unique_ptr<RedisStoreNode>> nodes_;
  std::vector<RedisStoreNode*> owners_;  // of a Cluster: the nodes of the slots
  size_t shards_ = 0;                    // 0: not known yet
  // See refusal(). From the last connect() on.
  int refused_ = 0;
  std::string why_refused_;
};

}  // namespace workflow

#include "store/RedisStoreOpening.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <vector>

#include "store/RedisStoreScripts.h"
#include "store/RedisStoreServer.h"

namespace workflow {

namespace {

std::string new_id() {
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return {};
  }
  std::string id;
  for (const unsigned char byte : random) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

// `asked`: the server has replied.
int refuse_store(const RedisStoreNodes::Question& asked, int error, const std::string& why,
                 std::string* message) {
  *message = asked.node->link.name() + ": " + why;
  return error;
}

// What the script has said.
struct OpenedShard {
  std::string word;
  std::string detail;
  const protocol::RedisValue* value = nullptr;

  static int read(const RedisStoreNodes::Question& asked, OpenedShard* opened,
                  std::string* message) {
    const RedisStoreLink::Reply& reply = asked.reply;
    const int error = redis_store_failure(asked.node->link, reply, message);
    if (error == 0) {
      opened->value = &reply.value;
      opened->word = reply.value.arr_size() > 0 ? reply.value[0].string_value() : "other";
      opened->detail = reply.value.arr_size() > 1 ? reply.value[1].string_value() : "";
    }
    return error;
  }
};

}  // namespace

struct RedisStoreOpening::Way {
  RedisStoreNodes& nodes;
  const RedisStorePlace& place;
  const std::string& time;
  const std::vector<int64_t>& last;
  const std::string session = {};  // empty: it was open before
  const std::string remembered = {};
  const std::string name = "the store \"" + place.name_space + "\"";

  int refuse_layout(const RedisStoreNodes::Question& asked, const OpenedShard& opened,
                    std::string* message) const {
    return refuse_store(asked, ENOTSUP,
                        name + " has the layout " + opened.detail +
                            ", and this version of the library knows only 3",
                        message);
  }
  RedisStoreNodes::Question question(const std::string& store_id, size_t shard,
                                     const std::string& count, bool may_make,
                                     const std::string& done = "") const {
    RedisStoreNodes::Question question;
    question.shard = shard;
    question.command = [this, store_id, shard, count, may_make, done](const RedisStoreNode& node) {
      return redis_store_command(
          "EVAL", redis_store_opening(), place, shard,
          {store_id, count, std::to_string(shard), may_make ? "make" : "find", node.about.identity,
           time, done, session, remembered, std::to_string(shard < last.size() ? last[shard] : 0)});
    };
    return question;
  }
  RedisStoreNodes::Question ask(const std::string& store_id, size_t shard, const std::string& count,
                                bool may_make, const std::string& done = "") const {
    RedisStoreNodes::Question one = question(store_id, shard, count, may_make, done);
    nodes.ask(one);
    return one;
  }
};

int RedisStoreOpening::open(RedisStoreNodes& nodes, const RedisStorePlace& place, bool create,
                            const std::string& time, const std::string& session, size_t remembered,
                            std::string* message) {
  const Way way{nodes, place, time, last, id.empty() ? session : "", std::to_string(remembered)};
  bool complete = false;
  has_lost = false;
  int error = open_first(way, create, &complete, message);
  error = error != 0 ? error : open_others(way, complete, message);
  if (error != 0 || complete) return error;
  OpenedShard opened;
  return OpenedShard::read(way.ask(id, 0, std::to_string(shards), false, "done"), &opened, message);
}

void RedisStoreOpening::note(size_t shard, const protocol::RedisValue& opened) {
  const int64_t present = redis_store_number(opened, 4);
  progress.resize(shards);
  last.resize(shards);
  has_lost = has_lost || present < progress[shard];
  progress[shard] = present;
  last[shard] = redis_store_number(opened, 5);
}

int RedisStoreOpening::open_first(const Way& way, bool create, bool* complete,
                                  std::string* message) {
  const std::string known_id = id;
  if (known_id.empty()) {
    id = new_id();
  }
  if (id.empty()) {
    *message = "no random numbers are to be had";
    return EAGAIN;
  }
  // What a new store gets. One that is there says how many it has.
  std::string count = way.place.shards == 0 ? "" : std::to_string(way.place.shards);
  RedisStoreNodes::Question first = way.ask(id, 0, count, false);
  OpenedShard opened;
  int error = OpenedShard::read(first, &opened, message);
  if (error == 0 && opened.word == "none" && create && known_id.empty()) {
    if (count.empty()) {
      count = std::to_string(RedisStorePlace::kDefaultShards);
    }
    first = way.ask(id, 0, count, true);
    error = OpenedShard::read(first, &opened, message);
  }
  if (error != 0) return error;
  if (opened.word == "none") {
    return known_id.empty()
               ? refuse_store(first, ENOENT, "there is no " + way.name.substr(4) + " on the server",
                              message)
               : refuse_store(first, EILSEQ, way.name + " was removed from the server", message);
  }
  if (opened.word == "shards") {
    return refuse_store(first, EINVAL,
                        way.name + " has " + opened.detail + " shards, but the URL says " + count +
                            ": their number cannot change",
                        message);
  }
  if (opened.word == "layout") return way.refuse_layout(first, opened, message);
  const bool is_store = opened.word == "ok" && opened.value->arr_size() == 6;
  if (is_store) {
    count = (*opened.value)[2].string_value();
    std::from_chars(count.data(), count.data() + count.size(), shards);
  }
  if (!is_store || shards < 1 || shards > RedisStorePlace::kMaxShards) {
    return refuse_store(first, EILSEQ, "the keys of " + way.name + " hold something else", message);
  }
  if (!known_id.empty() && opened.detail != known_id) {
    return refuse_store(first, EILSEQ,
                        way.name + " was removed from the server, and another one was made",
                        message);
  }
  id = opened.detail;
  *complete = (*opened.value)[3].string_value() == "1";
  note(0, *opened.value);
  return 0;
}

int RedisStoreOpening::open_others(const Way& way, bool complete, std::string* message) {
  std::vector<RedisStoreNodes::Question> questions;
  for (size_t shard = 1; shard < shards; shard++) {
    questions.push_back(way.question(id, shard, std::to_string(shards), !complete));
  }
  way.nodes.ask(questions);
  for (const RedisStoreNodes::Question& question : questions) {
    OpenedShard opened;
    if (const int error = OpenedShard::read(question, &opened, message)) return error;
    if (opened.word != "ok" || opened.detail != id) {
      return refuse_store(question, EILSEQ,
                          way.name + " is damaged: keys of it were removed or replaced", message);
    }
    note(question.shard, *opened.value);
  }
  return 0;
}

int RedisStoreOpening::open_again(RedisStoreNodes& nodes, const RedisStorePlace& place,
                                  size_t shard, RedisStoreNode& node, const std::string& time,
                                  std::string* message) {
  has_lost = false;
  // Its identity may have changed since it was read. Two processes that knew different ones would
  // open the shard in turn for ever.
  if (const int error = node.about.read(node.link, place.kind, message)) return error;
  const Way way{nodes, place, time, last};
  const RedisStoreNodes::Question asked = way.ask(id, shard, std::to_string(shards), false);
  OpenedShard opened;
  if (const int error = OpenedShard::read(asked, &opened, message)) return error;
  if (opened.word == "layout") return way.refuse_layout(asked, opened, message);
  if (opened.word != "ok" || opened.detail != id) {
    return refuse_store(asked, EILSEQ, way.name + " was removed from the server, or is damaged",
                        message);
  }
  note(shard, *opened.value);
  return 0;
}

}  // namespace workflow

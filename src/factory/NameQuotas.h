#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace workflow {

// How many nodes may be linked under a name, or under all names that begin with a prefix.
//
// A set of quotas does not change: a new set, which shares the quotas with it, takes its place.
// Each quota counts the nodes that it has admitted. Any thread may change that count and the
// maximum.
class NameQuotas {
 public:
  static constexpr size_t kNone = SIZE_MAX;
  enum class Of { kName, kPrefix };

  NameQuotas() = default;

  // Return a copy of this set with a quota that is not in it, or without one that is. Throw
  // std::bad_alloc.
  std::unique_ptr<NameQuotas> with(Of of, std::string_view text, size_t max) const;
  std::unique_ptr<NameQuotas> without(Of of, std::string_view text) const;

  bool contains(Of of, std::string_view text) const { return find(of, text) != nullptr; }
  // Changes the maximum of a quota in the set. Nodes that exceed the new maximum stay.
  void set_max(Of of, std::string_view text, size_t max) const;
  // Adds `nodes` nodes, which are linked already, to the count of a quota in the set.
  void add(Of of, std::string_view text, size_t nodes) const;
  static bool covers(Of of, std::string_view text, std::string_view name);

  // Counts one more node of `name` in all quotas that cover the name, and returns true. If one of
  // them is full and `beyond` is false, counts the node in none of them, and returns false.
  // O(log quotas).
  bool take(std::string_view name, bool beyond) const;
  void give_back(std::string_view name) const;

 private:
  struct Quota {
    Quota(std::string_view t, size_t m) : text(t), max(m) {}
    bool take(bool beyond);

    const std::string text;
    // Relaxed: they publish nothing. Each change of `used` is one read-modify-write, so threads
    // that hold the locks of different shards lose no count. A take() that overlaps a set_max() may
    // go by either maximum.
    std::atomic<size_t> max;
    std::atomic<size_t> used{0};
  };
  struct Prefix {
    std::shared_ptr<Quota> quota;
    size_t wider;  // the longest other prefix that this one begins with
  };
  static constexpr size_t kNoWider = SIZE_MAX;

  Quota* find(Of of, std::string_view text) const;
  void link_prefixes();
  // Calls visit(quota) for all quotas that cover `name`. Stops and returns false if visit() returns
  // false.
  template <class Visit>
  bool visit(std::string_view name, Visit&& visit) const;

  std::vector<std::shared_ptr<Quota>> names_;  // sorted by text
  std::vector<Prefix> prefixes_;               // sorted by text
};

}  // namespace workflow

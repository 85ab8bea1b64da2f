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
// A set of quotas does not change: another one that shares them takes its place. What a quota has
// given out is counted in it, from any thread.
class NameQuotas {
 public:
  static constexpr size_t kNone = SIZE_MAX;
  enum class Of { kName, kPrefix };

  NameQuotas() = default;

  // This set with one more, which is not in it, or without one that is. Throws std::bad_alloc.
  std::unique_ptr<NameQuotas> with(Of of, std::string_view text, size_t max) const;
  std::unique_ptr<NameQuotas> without(Of of, std::string_view text) const;

  bool contains(Of of, std::string_view text) const { return find(of, text) != nullptr; }
  // Of one in the set. Who has more already keeps it.
  void set_max(Of of, std::string_view text, size_t max) const;
  // Counts `nodes` that are there already to that one.
  void add(Of of, std::string_view text, size_t nodes) const;
  static bool covers(Of of, std::string_view text, std::string_view name);

  // Room for one more node of `name` in all quotas that it falls under, or in none: false.
  // `beyond`: even if there is none. O(log quotas).
  bool take(std::string_view name, bool beyond) const;
  void give_back(std::string_view name) const;

 private:
  struct Quota {
    Quota(std::string_view t, size_t m) : text(t), max(m) {}
    bool take(bool beyond);

    const std::string text;
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
  // Calls visit(quota) for all that `name` falls under, until that is false. False then.
  template <class Visit>
  bool visit(std::string_view name, Visit&& visit) const;

  std::vector<std::shared_ptr<Quota>> names_;  // by text
  std::vector<Prefix> prefixes_;               // by text
};

}  // namespace workflow

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "store/History.h"
#include "store/HistorySpec.h"

namespace store_test::history {

// Whether the operations on one name can be put into an order that their times allow and that
// HistorySpec follows: whether the history is linearizable. The search of Wing and Gong with a
// memory: it goes through calls and ends in the order of their times, and keeps every pair of a
// state and a set of open operations that have been carried out already. An operation is carried
// out when its own end, or that of another one, needs it.
//
// Operations that were never answered stay open, and each may or may not have happened. Some of
// them multiply the possibilities until no search could end. Then the search gives up, and says how
// many operations it has not checked; what came before them was checked.
class HistoryChecker {
 public:
  // How many pairs the search keeps for the end of one operation before it gives up.
  static constexpr size_t kMaxConfigurations = 50'000;

  // What is wrong, with what led to it; empty: nothing.
  // `*unchecked`: how many operations the search has not reached is added to it.
  static std::string check(const std::vector<Operation>& operations, size_t* unchecked,
                           size_t max_configurations = kMaxConfigurations) {
    HistoryChecker checker(operations, max_configurations);
    std::string wrong = checker.run();
    *unchecked += checker.unchecked_;
    return wrong;
  }

  // Checks all names of a history. Returns the first thing that is wrong.
  static std::string check_all(const Reader& reader, bool dies_with_worker, size_t* unchecked,
                               size_t max_configurations = kMaxConfigurations) {
    for (const auto& [name, operations] : reader.by_name(dies_with_worker)) {
      if (std::string wrong = check(operations, unchecked, max_configurations); !wrong.empty()) {
        return name + ": " + wrong;
      }
    }
    return {};
  }

 private:
  struct Event {
    int64_t us = 0;
    bool is_end = false;
    size_t operation = 0;
    // An operation that ends when another one is called may have come after it or before it.
    bool operator<(const Event& other) const {
      return us != other.us ? us < other.us : is_end < other.is_end;
    }
  };

  struct Configuration {
    State state;
    std::set<size_t> carried_out;  // of the open ones

    std::string text() const {
      std::string text = state.text() + " /";
      for (const size_t operation : carried_out) {
        text += ' ' + std::to_string(operation);
      }
      return text;
    }
  };
  using Configurations = std::map<std::string, Configuration>;

  HistoryChecker(const std::vector<Operation>& operations, size_t max_configurations)
      : operations_(operations), max_configurations_(max_configurations) {}

  std::string run() {
    std::vector<Event> events;
    for (size_t i = 0; i < operations_.size(); i++) {
      events.push_back({operations_[i].called_us, false, i});
      events.push_back({operations_[i].ended_us, true, i});
    }
    std::sort(events.begin(), events.end());
    Configurations configurations;
    configurations[Configuration().text()] = {};
    size_t checked = 0;
    for (const Event& event : events) {
      if (!event.is_end) {
        open_.insert(event.operation);
        continue;
      }
      Configurations next = configurations_after(configurations, event.operation);
      if (gives_up_) {
        unchecked_ = operations_.size() - checked;
        return {};
      }
      if (next.empty()) return report(event.operation, configurations);
      open_.erase(event.operation);
      configurations = std::move(next);
      checked++;
    }
    return {};
  }

  // Those in which the operation has been carried out. One without an answer may never be.
  Configurations configurations_after(const Configurations& from, size_t operation) {
    const bool must_happen = operations_[operation].answered;
    Configurations result;
    Configurations seen = from;
    std::vector<Configuration> todo;
    for (const auto& [text, configuration] : from) {
      todo.push_back(configuration);
    }
    while (!todo.empty()) {
      if (seen.size() > max_configurations_) {
        gives_up_ = true;
        return {};
      }
      Configuration configuration = std::move(todo.back());
      todo.pop_back();
      const bool has_happened = configuration.carried_out.count(operation) != 0;
      if (has_happened || !must_happen) {
        Configuration done = configuration;
        done.carried_out.erase(operation);
        result[done.text()] = std::move(done);
      }
      if (has_happened) continue;
      for (const size_t other : open_) {
        if (configuration.carried_out.count(other) == 0) {
          carry_out(configuration, other, seen, todo);
        }
      }
    }
    return result;
  }

  void carry_out(const Configuration& configuration, size_t operation, Configurations& seen,
                 std::vector<Configuration>& todo) const {
    for (State& state : HistorySpec::after(configuration.state, operations_[operation])) {
      Configuration next{std::move(state), configuration.carried_out};
      next.carried_out.insert(operation);
      if (seen.emplace(next.text(), next).second) {
        todo.push_back(std::move(next));
      }
    }
  }

  std::string report(size_t operation, const Configurations& configurations) const {
    std::ostringstream out;
    out << "no order explains the answer of\n  " << line_of(operations_[operation]) << '\n';
    out << "which could follow on (outcome, its number, last number, last fence | number, stage, "
           "due, wake from, to, fence, attempts, marked, follows)\n";
    size_t shown = 0;
    for (const auto& [text, configuration] : configurations) {
      if (shown++ < 5) {
        out << "  " << text << '\n';
      }
    }
    out << "The operations up to it:\n";
    std::vector<const Operation*> before;
    for (const Operation& each : operations_) {
      if (each.called_us <= operations_[operation].ended_us) {
        before.push_back(&each);
      }
    }
    std::sort(before.begin(), before.end(),
              [](const Operation* a, const Operation* b) { return a->called_us < b->called_us; });
    for (size_t i = before.size() > 25 ? before.size() - 25 : 0; i < before.size(); i++) {
      out << "  " << line_of(*before[i]) << '\n';
    }
    return out.str();
  }

  static std::string line_of(const Operation& operation) {
    std::ostringstream out;
    out << operation.called_us << ".." << operation.ended_us << ' ' << operation.worker << ' '
        << operation.what;
    for (const auto& [key, value] : operation.arguments) {
      out << ' ' << key << '=' << value;
    }
    out << " -> " << (operation.answered ? operation.result : "no answer");
    for (const auto& [key, value] : operation.answer) {
      out << ' ' << key << '=' << value;
    }
    return out.str();
  }

  const std::vector<Operation>& operations_;
  const size_t max_configurations_;
  std::set<size_t> open_;
  bool gives_up_ = false;
  size_t unchecked_ = 0;
};

}  // namespace store_test::history

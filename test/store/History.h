#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace store_test::history {

// What several workers have asked of one store and what it has answered, as lines of text:
//
//   ? WORKER NUMBER TIME OPERATION NAME key=value...     before the call
//   ! WORKER NUMBER TIME RESULT key=value...             after it
//   x WORKER TIME                                        the worker was killed, and is gone
//
// Times are microseconds by the clock of the store. A NUMBER is unique within its worker. RESULT is
// "ok"; "exists" (a schedule that WF_TIMER_KEEP has kept out); "doubt", which counts as no answer;
// or "refused", when the store says that nothing was done. Lists are separated by commas, and the
// parts of an item by colons. This header and the checker include nothing of the store.

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

using Fields = std::map<std::string, std::string>;

struct Operation {
  std::string worker;
  uint64_t number = 0;
  std::string what;
  std::string name;
  Fields arguments;
  int64_t called_us = 0;
  // When it had ended at the latest.
  int64_t ended_us = kNever;
  // False: it may have been carried out at any time up to the end, or never.
  bool answered = false;
  std::string result;
  Fields answer;

  std::string argument(const std::string& key) const { return value_of(arguments, key); }
  int64_t number_of(const std::string& key) const { return number_in(value_of(arguments, key)); }
  std::string answered_text(const std::string& key) const { return value_of(answer, key); }
  int64_t answered_number(const std::string& key) const { return number_in(value_of(answer, key)); }

  // The items of a list in the answer, each as its parts.
  std::vector<std::vector<std::string>> answered_list(const std::string& key) const {
    std::vector<std::vector<std::string>> items;
    for (const std::string& item : split(value_of(answer, key), ',')) {
      items.push_back(split(item, ':'));
    }
    return items;
  }

  static int64_t number_in(const std::string& text) {
    return text == "never" ? kNever : std::strtoll(text.c_str(), nullptr, 10);
  }

 private:
  static std::string value_of(const Fields& fields, const std::string& key) {
    const auto found = fields.find(key);
    return found == fields.end() ? "" : found->second;
  }
  static std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, separator);) {
      parts.push_back(part);
    }
    return parts;
  }
};

// Reads lines. A last line without an end is what a killed worker was about to write, and says
// nothing.
class Reader {
 public:
  void read(const std::string& text) {
    for (size_t begin = 0;;) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) return;
      read_line(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  // Those of each name. What was not answered may have happened up to the last time of all, or to
  // the death of its worker if that means anything for the store (`dies_with_worker`).
  std::map<std::string, std::vector<Operation>> by_name(bool dies_with_worker) const {
    std::map<std::string, std::vector<Operation>> names;
    for (const auto& [key, operation] : operations_) {
      if (operation.result == "refused") continue;
      Operation copy = operation;
      if (!copy.answered) {
        const auto death = deaths_.find(copy.worker);
        const bool is_over = dies_with_worker && death != deaths_.end();
        copy.ended_us = is_over ? death->second : last_us_;
      }
      names[copy.name].push_back(std::move(copy));
    }
    return names;
  }

  size_t size() const { return operations_.size(); }

 private:
  void read_line(const std::string& line) {
    std::istringstream in(line);
    std::string mark;
    std::string worker;
    uint64_t number = 0;
    int64_t us = 0;
    in >> mark >> worker;
    if (mark == "x") {
      in >> us;
      deaths_[worker] = us;
    } else if (mark == "?") {
      in >> number >> us;
      Operation& operation = operations_[{worker, number}];
      operation.worker = worker;
      operation.number = number;
      operation.called_us = us;
      in >> operation.what >> operation.name;
      read_fields(in, operation.arguments);
    } else {
      in >> number >> us;
      Operation& operation = operations_[{worker, number}];
      in >> operation.result;
      operation.answered = operation.result != "doubt";
      operation.ended_us = operation.answered ? us : kNever;
      read_fields(in, operation.answer);
    }
    last_us_ = std::max(last_us_, us);
  }

  static void read_fields(std::istringstream& in, Fields& fields) {
    for (std::string field; in >> field;) {
      const size_t equals = field.find('=');
      fields[field.substr(0, equals)] = field.substr(equals + 1);
    }
  }

  std::map<std::pair<std::string, uint64_t>, Operation> operations_;
  std::map<std::string, int64_t> deaths_;
  int64_t last_us_ = 0;
};

}  // namespace store_test::history

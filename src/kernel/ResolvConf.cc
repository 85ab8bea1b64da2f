#include "kernel/ResolvConf.h"

#include <algorithm>
#include <charconv>

#include "kernel/TextLines.h"

namespace workflow {

namespace {

// The number after `name` in "name:number", at most `most`; -1 when `option` is something else.
int option_number(std::string_view option, std::string_view name, int most) {
  if (!option.starts_with(name)) return -1;
  option.remove_prefix(name.size());
  int value = -1;
  std::from_chars(option.data(), option.data() + option.size(), value);
  return value < 0 ? -1 : std::min(value, most);
}

}  // namespace

ResolvConf::ResolvConf(std::string_view text) {
  while (!text.empty()) {
    read_line(next_line(text));
  }
}

void ResolvConf::read_line(std::string_view line) {
  if (line.starts_with('#') || line.starts_with(';')) return;
  const std::string_view keyword = take_word(line);
  if (keyword == "nameserver") {
    const auto server = numeric_host_and_port(take_word(line), ResolvConf::kPort);
    if (server && servers.size() < kMaxServers) {
      servers.push_back(*server);
    }
  } else if (keyword == "search") {
    read_domains(line, kMaxDomains);
  } else if (keyword == "domain") {
    read_domains(line, 1);
  } else if (keyword == "options") {
    for (auto word = take_word(line); !word.empty(); word = take_word(line)) {
      read_option(word);
    }
  }
}

// If there are several such lines, the last one counts.
void ResolvConf::read_domains(std::string_view words, size_t most) {
  domains.clear();
  for (auto word = take_word(words); !word.empty(); word = take_word(words)) {
    if (word.ends_with('.')) {
      word.remove_suffix(1);
    }
    if (domains.size() < most && is_host_name(word)) {
      domains.push_back(lower_case(word));
    }
  }
}

void ResolvConf::read_option(std::string_view option) {
  if (option == "rotate") {
    rotate = true;
  } else if (const int dots = option_number(option, "ndots:", kMaxNdots); dots >= 0) {
    ndots = dots;
  } else if (const int seconds = option_number(option, "timeout:", kMaxTimeoutS); seconds > 0) {
    timeout_ns = seconds * kNsPerSec;
  } else if (const int times = option_number(option, "attempts:", kMaxAttempts); times > 0) {
    attempts = times;
  }
}

std::vector<std::string> ResolvConf::candidates(std::string_view host) const {
  if (host.ends_with('.')) return {std::string(host.substr(0, host.size() - 1))};
  std::vector<std::string> names;
  for (const std::string& domain : domains) {
    std::string name = std::string(host) + "." + domain;
    if (is_host_name(name)) {
      names.push_back(std::move(name));
    }
  }
  const bool itself_first = std::count(host.begin(), host.end(), '.') >= ndots;
  names.insert(itself_first ? names.begin() : names.end(), std::string(host));
  return names;
}

}  // namespace workflow

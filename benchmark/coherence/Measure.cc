#include "coherence/Measure.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "coherence/Machine.h"

namespace coherence {

namespace {

constexpr size_t kHotLines = 3;
constexpr size_t kHotFunctions = 4;

int64_t begun_ns = 0;

// The frames of a place in the program, the innermost first: "function file:line".
struct Frame {
  std::string function;
  std::string file;
  std::string line;
};
using Frames = std::vector<Frame>;

uintptr_t load_address() {
  Dl_info info;
  static const int here = 0;
  if (::dladdr(&here, &info) == 0) return 0;
  return reinterpret_cast<uintptr_t>(info.dli_fbase);
}

std::string program() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

// A call returns behind itself, so the byte before belongs to it.
std::map<uintptr_t, Frames> look_up(const std::vector<uintptr_t>& places) {
  std::map<uintptr_t, Frames> found;
  if (places.empty()) return found;
  std::string command = "llvm-symbolizer-14 --obj=" + program();
  for (const uintptr_t pc : places) {
    char text[32];
    std::snprintf(text, sizeof text, " 0x%zx", pc - 1 - load_address());
    command += text;
  }
  FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return found;
  char line[4096];
  size_t at = 0;
  Frame frame;
  while (at < places.size() && std::fgets(line, sizeof line, output) != nullptr) {
    line[std::strcspn(line, "\n")] = 0;
    const std::string text = line;
    if (text.empty()) {
      ++at;
    } else if (frame.function.empty()) {
      frame.function = text;
    } else {
      const size_t column = text.rfind(':');
      const size_t number = text.rfind(':', column - 1);
      frame.file = text.substr(0, number);
      frame.line = text.substr(number + 1, column - number - 1);
      found[places[at]].push_back(frame);
      frame = {};
    }
  }
  ::pclose(output);
  return found;
}

// Without parameters, template arguments and the namespace.
std::string short_name(const std::string& function) {
  std::string text;
  int depth = 0;
  for (const char c : function) {
    if (c == '<') ++depth;
    if (depth == 0) text += c;
    if (c == '>') --depth;
  }
  const size_t call = text.find("operator()");
  text = text.substr(0, text.find('(', call == std::string::npos ? 0 : call + 10));
  text = text.substr(text.rfind(' ') + 1);
  if (text.rfind("workflow::", 0) == 0) text = text.substr(10);
  return text;
}

// Whether it says for whom the access was, as a mutex does not.
bool is_telling(const Frame& frame) {
  for (const char* part : {"/usr/", "util/Mutex.", "detail/References", "util/BlockCache.h"}) {
    if (frame.file.find(part) != std::string::npos) return false;
  }
  return frame.file.find('/') != std::string::npos;
}

const Frame* telling_frame(const Frames& frames) {
  for (const Frame& frame : frames) {
    if (is_telling(frame)) return &frame;
  }
  return nullptr;
}

// The innermost function of ours, and its place in the source.
std::string name_of(const Frames& frames, const Frames& callers) {
  const Frame* frame = telling_frame(frames);
  const bool inside = frame != nullptr;
  if (!inside) frame = telling_frame(callers);
  if (frame == nullptr) return frames.empty() ? "outside" : short_name(frames.back().function);
  const size_t slash = frame->file.rfind('/');
  std::string name =
      short_name(frame->function) + " (" + frame->file.substr(slash + 1) + ":" + frame->line + ")";
  // A lock that was not free at once.
  if (!inside && !frames.empty() &&
      frames.back().function.find("lock_contended") != std::string::npos) {
    name = "spinning in " + name;
  }
  return name;
}

double per(uint64_t count, size_t operations) {
  return static_cast<double>(count) / static_cast<double>(operations);
}

std::vector<Line> hot_lines() {
  std::vector<Line> lines;
  for (const Line& line : Machine::the().lines().lines()) {
    if (line.transfers > 0) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.transfers > b.transfers; });
  return lines;
}

std::vector<Site> hot_sites() {
  std::vector<Site> sites;
  for (const Site& site : Machine::the().lines().sites()) {
    if (site.transfers > 0) sites.push_back(site);
  }
  std::sort(sites.begin(), sites.end(),
            [](const Site& a, const Site& b) { return a.transfers > b.transfers; });
  return sites;
}

int64_t option(int argc, char** argv, const char* name, int64_t fallback) {
  const std::string prefix = std::string("--") + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], prefix.c_str(), prefix.size()) == 0) {
      return std::strtoll(argv[i] + prefix.size(), nullptr, 10);
    }
  }
  return fallback;
}

}  // namespace

void configure(int argc, char** argv) {
  const int64_t seed = option(argc, argv, "seed", 1);
  Machine::the().seed(static_cast<uint64_t>(seed));
  Machine::the().set_hold_ns(option(argc, argv, "hold-ns", 0));
  Machine::the().set_transfer_ns(option(argc, argv, "transfer-ns", 60));
}

void begin_counting() {
  Machine::the().begin_counting();
  begun_ns = Machine::the().now_ns();
}

Total total() {
  Machine& machine = Machine::the();
  Counts sum;
  const int64_t ns = machine.now_ns() - begun_ns;
  for (int i = 0; i < machine.threads(); ++i)
    sum += machine.lines().counts(i);
  const std::vector<Line> lines = hot_lines();
  return {sum.accesses, sum.read_modify_writes, sum.transfers, ns,
          lines.empty() ? 0 : lines.front().transfers};
}

void report(const char* row, size_t threads, size_t pollers, size_t operations) {
  const Total sum = total();
  const std::vector<Line> lines = hot_lines();
  const std::vector<Site> sites = hot_sites();
  std::vector<uintptr_t> pcs;
  for (const Site& site : sites) {
    pcs.push_back(site.pc);
    if (site.caller != 0) pcs.push_back(site.caller);
  }
  const HeldMutex held = Machine::the().longest_held();
  pcs.push_back(held.pc);
  pcs.push_back(held.caller);
  std::sort(pcs.begin(), pcs.end());
  pcs.erase(std::unique(pcs.begin(), pcs.end()), pcs.end());
  std::map<uintptr_t, Frames> frames = look_up(pcs);
  const auto name = [&](const Site& site) { return name_of(frames[site.pc], frames[site.caller]); };

  std::printf(
      "row=%s threads=%zu pollers=%zu transfer_ns=%lld hold_ns=%lld operations=%zu accesses=%.1f "
      "rmw=%.2f "
      "transfers=%.2f hottest=%.2f ns=%.1f\n",
      row, threads, pollers, static_cast<long long>(Machine::the().transfer_ns()),
      static_cast<long long>(Machine::the().hold_ns()), operations, per(sum.accesses, operations),
      per(sum.read_modify_writes, operations), per(sum.transfers, operations),
      per(sum.of_one_line, operations),
      static_cast<double>(sum.ns) / static_cast<double>(operations));
  std::printf(
      "  mutex row=%s threads=%zu locked=%.0f%% of the time, %.0f ns per operation, by: %s\n", row,
      threads, 100 * static_cast<double>(held.held_ns) / static_cast<double>(sum.ns),
      static_cast<double>(held.held_ns) / static_cast<double>(operations),
      name_of(frames[held.pc], frames[held.caller]).c_str());
  const auto share = [&](uint64_t count) {
    return 100 * static_cast<double>(count) /
           static_cast<double>(std::max<uint64_t>(sum.transfers, 1));
  };
  for (size_t i = 0; i < std::min(kHotLines, lines.size()); ++i) {
    std::map<std::string, uint64_t> functions;
    for (const Site& site : sites) {
      if (site.line == lines[i].number) functions[name(site)] += site.transfers;
    }
    std::vector<std::pair<uint64_t, std::string>> sorted;
    for (const auto& [function, count] : functions)
      sorted.emplace_back(count, function);
    std::sort(sorted.rbegin(), sorted.rend());
    std::printf("  line row=%s threads=%zu per_op=%.2f share=%.0f%% by:", row, threads,
                per(lines[i].transfers, operations), share(lines[i].transfers));
    for (size_t k = 0; k < std::min<size_t>(3, sorted.size()); ++k)
      std::printf(" %s%s", sorted[k].second.c_str(),
                  k + 1 < std::min<size_t>(3, sorted.size()) ? "," : "");
    std::printf("\n");
  }
  std::map<std::string, uint64_t> functions;
  for (const Site& site : sites)
    functions[name(site)] += site.transfers;
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [function, count] : functions)
    sorted.emplace_back(count, function);
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t i = 0; i < std::min(kHotFunctions, sorted.size()); ++i) {
    std::printf("  function row=%s threads=%zu per_op=%.2f share=%.0f%% %s\n", row, threads,
                per(sorted[i].first, operations), share(sorted[i].first), sorted[i].second.c_str());
  }
  std::fflush(stdout);
}

void Gate::arrive() {
  if (++arrived_ >= awaited_) Machine::the().wake(this, true);
}

void Gate::wait_for(size_t count) {
  awaited_ = count;
  while (arrived_ < count)
    Machine::the().wait(this, kNever);
}

}  // namespace coherence

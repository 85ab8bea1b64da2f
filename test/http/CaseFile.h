#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workflow/WFServerParams.h"

// The cases of the conformance script as data; cases/README.md says how they are written.
namespace http_conformance {

using Fields = std::vector<std::pair<std::string, std::string>>;

// One thing the client must see next.
struct Expectation {
  enum class Kind { kInterim, kAccept, kRefuse, kClose };
  Kind kind = Kind::kClose;
  int status = 0;
  // For kAccept: what the server must have understood, and how its reply looks.
  std::string method, target, version, body;
  Fields fields;
  std::vector<std::string> absent_fields;
  Fields reply_fields;
  bool closes = false;
};

// Bytes that go out together, and what must come before the next ones go out.
struct Block {
  std::string bytes;
  std::vector<Expectation> expected;
};

struct Case {
  std::string id;  // "9112-6.3/length_and_coding"
  std::string why;
  std::string where;  // file and line
  std::string error;  // what is wrong with the description; empty when nothing
  std::vector<std::pair<std::string, int>> settings;
  std::vector<Block> blocks;
  bool sentinel = true;
  bool half_close = false;
  bool may_continue = false;  // a 100 may come or not
  bool never_desync = false;  // the RFC leaves the answer open; what is expected is our choice

  // In GoogleTest's alphabet.
  std::string test_name() const {
    std::string name;
    for (const char c : id) {
      name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    }
    return name;
  }
};

inline void PrintTo(const Case& which, std::ostream* out) {
  *out << which.where << ": " << which.why;
}

// What "set <name> <value>" may name.
inline const std::map<std::string, void (*)(struct WFServerParams&, int)>& settings() {
  using Params = struct WFServerParams;
  static const std::map<std::string, void (*)(Params&, int)> all = {
      {"request_line_bytes",
       [](Params& p, int n) { p.http_limits.request_line_bytes = static_cast<size_t>(n); }},
      {"field_line_bytes",
       [](Params& p, int n) { p.http_limits.field_line_bytes = static_cast<size_t>(n); }},
      {"field_name_bytes",
       [](Params& p, int n) { p.http_limits.field_name_bytes = static_cast<size_t>(n); }},
      {"header_bytes",
       [](Params& p, int n) { p.http_limits.header_bytes = static_cast<size_t>(n); }},
      {"header_fields",
       [](Params& p, int n) { p.http_limits.header_fields = static_cast<size_t>(n); }},
      {"chunk_extension_bytes",
       [](Params& p, int n) { p.http_limits.chunk_extension_bytes = static_cast<size_t>(n); }},
      {"chunk_overhead_bytes",
       [](Params& p, int n) { p.http_limits.chunk_overhead_bytes = static_cast<size_t>(n); }},
      {"leading_empty_lines",
       [](Params& p, int n) { p.http_limits.leading_empty_lines = static_cast<unsigned>(n); }},
      {"request_size_limit",
       [](Params& p, int n) { p.request_size_limit = static_cast<size_t>(n); }},
      {"body_bytes_per_second",
       [](Params& p, int n) { p.body_bytes_per_second = static_cast<size_t>(n); }},
      {"header_timeout", [](Params& p, int n) { p.header_timeout = n; }},
      {"peer_response_timeout", [](Params& p, int n) { p.peer_response_timeout = n; }},
      {"body_timeout", [](Params& p, int n) { p.body_timeout = n; }},
      {"receive_timeout", [](Params& p, int n) { p.receive_timeout = n; }},
      {"keep_alive_timeout", [](Params& p, int n) { p.keep_alive_timeout = n; }},
  };
  return all;
}

// Reads one file of cases. A description that is wrong becomes a case with an error, which fails.
class CaseFile {
 public:
  explicit CaseFile(const std::filesystem::path& path) : name_(path.filename().string()) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      line_number_++;
      if (!line.empty() && line[0] != '#') {
        next_line(line);
      }
    }
    finish_case();
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  // "\r", "\n", "\t", "\\", "\x1f", and "\{text*3}" for text three times.
  std::string unescape(std::string_view text) {
    std::string bytes;
    for (size_t i = 0; i < text.size(); i++) {
      if (text[i] != '\\') {
        bytes += text[i];
        continue;
      }
      const char kind = ++i < text.size() ? text[i] : '\0';
      static constexpr std::string_view kNames = "rnt\\", kBytes = "\r\n\t\\";
      const size_t simple = kNames.find(kind);
      if (kind != '\0' && simple != std::string_view::npos) {
        bytes += kBytes[simple];
      } else if (kind == 'x' && i + 2 < text.size()) {
        bytes += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else if (kind == '{' && text.find('}', i) != std::string_view::npos) {
        const size_t end = text.find('}', i);
        append_repeated(text.substr(i + 1, end - i - 1), bytes);
        i = end;
      } else {
        fail("unknown escape in: " + std::string(text));
      }
    }
    return bytes;
  }

  void append_repeated(std::string_view text, std::string& bytes) {
    const size_t star = text.rfind('*');
    const int count =
        star == std::string_view::npos ? 0 : std::atoi(std::string(text.substr(star + 1)).c_str());
    if (count <= 0) {
      fail("no repetition: " + std::string(text));
      return;
    }
    const std::string once = unescape(text.substr(0, star));
    for (int i = 0; i < count; i++) {
      bytes += once;
    }
  }

  void fail(const std::string& what) {
    if (!cases_.empty() && cases_.back().error.empty()) {
      cases_.back().error = name_ + ":" + std::to_string(line_number_) + ": " + what;
    }
  }

  void finish_case() {
    if (cases_.empty()) return;
    end_head();
    const Case& done = cases_.back();
    if (done.why.empty()) {
      fail("the case before does not say why");
    } else if (done.blocks.empty() || done.blocks.back().expected.empty()) {
      fail("the case before expects nothing");
    }
  }

  void begin_case(const std::string& line) {
    finish_case();
    const size_t end = line.find(']');
    cases_.emplace_back();
    cases_.back().id = line.substr(1, end - 1);
    cases_.back().why = end + 2 < line.size() ? line.substr(end + 2) : "";
    cases_.back().where = name_ + ":" + std::to_string(line_number_);
  }

  void begin_head(std::string_view method_and_target) {
    sending().bytes += unescape(method_and_target) + " HTTP/1.1\r\nHost: x\r\n";
    in_head_ = true;
  }

  void end_head() {
    if (in_head_) {
      sending().bytes += "\r\n";
      in_head_ = false;
    }
  }

  void send_chunks(std::string_view text) {
    if (!in_head_) {
      fail("chunks without a head that begins with *");
      return;
    }
    sending().bytes += "Transfer-Encoding: chunked\r\n";
    end_head();
    sending().bytes += unescape(text);
  }

  void next_line(const std::string& line) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (line[0] == '[') {
      begin_case(line);
      return;
    }
    if (cases_.empty()) {
      cases_.emplace_back();
      fail("a line outside any case");
      return;
    }
    if (line.compare(0, 7, "chunks ") == 0) {
      send_chunks(std::string_view(line).substr(7));
      return;
    }
    if (line.compare(0, 2, "> ") != 0) {
      end_head();
    }
    Case& now = cases_.back();
    const std::string text = line.size() > 2 ? line.substr(2) : "";
    if (line[0] == '>' || line[0] == '+') {
      sending().bytes += unescape(text) + (line[0] == '>' ? "\r\n" : "");
    } else if (line[0] == '*') {
      begin_head(text);
    } else if (line[0] == '=') {
      take_expectation(line.substr(1));
    } else if (line.compare(0, 2, "  ") == 0) {
      take_detail(text);
    } else if (first == "set") {
      take_setting(words);
    } else if (line == "half-close") {
      now.half_close = true;
      now.sentinel = false;
    } else if (line == "no-sentinel") {
      now.sentinel = false;
    } else if (line == "maybe-100") {
      now.may_continue = true;
    } else {
      fail("unknown line: " + line);
    }
  }

  void take_setting(std::istringstream& words) {
    std::string name;
    int value = 0;
    if (!(words >> name >> value) || settings().count(name) == 0) {
      fail("unknown setting: " + name);
    }
    cases_.back().settings.emplace_back(name, value);
  }

  Block& sending() {
    std::vector<Block>& blocks = cases_.back().blocks;
    if (blocks.empty() || !blocks.back().expected.empty()) {
      blocks.emplace_back();
    }
    return blocks.back();
  }

  void take_expectation(const std::string& text) {
    std::istringstream words(text);
    std::string verdict;
    words >> verdict;
    if (verdict == "never-desync:") {
      cases_.back().never_desync = true;
      words >> verdict;
    }
    Expectation expected;
    size_t count = 1;
    if (verdict == "accept") {
      expected.kind = Expectation::Kind::kAccept;
      expected.status = 200;
      std::string times;
      words >> expected.method >> expected.target >> expected.version;
      expected.target = unescape(expected.target);
      if (words >> times) {
        count = static_cast<size_t>(std::atoi(times.c_str() + 1));
      }
      if (expected.version.empty() || count == 0) {
        fail("accept <method> <target> <version> [x<times>]");
      }
    } else if (verdict == "refuse") {
      expected.kind = Expectation::Kind::kRefuse;
      words >> expected.status;
    } else if (verdict == "100") {
      expected.kind = Expectation::Kind::kInterim;
      expected.status = 100;
    } else if (verdict != "close") {
      fail("unknown expectation: " + text);
    }
    if (cases_.back().blocks.empty()) {
      cases_.back().blocks.emplace_back();
    }
    auto& all = cases_.back().blocks.back().expected;
    all.insert(all.end(), count, expected);
  }

  void take_detail(const std::string& text) {
    if (cases_.back().blocks.empty() || cases_.back().blocks.back().expected.empty()) {
      fail("a detail of nothing: " + text);
      return;
    }
    Expectation& expected = cases_.back().blocks.back().expected.back();
    const size_t space = text.find(' ');
    const std::string kind = text.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : text.substr(space + 1);
    if (kind == "body") {
      expected.body = unescape(rest);
    } else if (kind == "status") {
      expected.status = std::atoi(rest.c_str());
    } else if (kind == "closes") {
      expected.closes = true;
    } else if (kind == "without") {
      expected.absent_fields.push_back(rest);
    } else if (kind == "field" || kind == "reply") {
      const size_t colon = rest.find(": ");
      if (colon == std::string::npos) {
        fail("no field: " + rest);
        return;
      }
      Fields& fields = kind == "field" ? expected.fields : expected.reply_fields;
      fields.emplace_back(rest.substr(0, colon), unescape(rest.substr(colon + 2)));
    } else {
      fail("unknown detail: " + text);
    }
  }

  const std::string name_;
  int line_number_ = 0;
  bool in_head_ = false;  // behind a line "* method target", whose fields may follow
  std::vector<Case> cases_;
};

// Every case of every file of a directory, in the order of the names of the files.
inline std::vector<Case> read_cases(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".txt") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Case> all;
  for (const auto& path : paths) {
    std::vector<Case> cases = CaseFile(path).take();
    all.insert(all.end(), std::make_move_iterator(cases.begin()),
               std::make_move_iterator(cases.end()));
  }
  return all;
}

}  // namespace http_conformance

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/Text.h"

namespace {

namespace fs = std::filesystem;
using test_support::text_of;

const fs::path kRoot = SOURCE_TREE;

// Every document of the project.
std::vector<fs::path> documents() {
  std::vector<fs::path> paths = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const char* folder : {"docs", "tutorial", "test", "benchmark"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() == ".md") {
        paths.push_back(entry.path());
      }
    }
  }
  return paths;
}

// What the pattern's first group matches, each once.
std::set<std::string> distinct_matches_of(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator each(text.begin(), text.end(), regex), end; each != end; ++each) {
    found.insert((*each)[1]);
  }
  return found;
}

// The fragments that name the headings of a document: lower case, spaces as "-", no punctuation.
std::set<std::string> anchors_of(const std::string& text) {
  std::set<std::string> anchors;
  for (const std::string& heading : distinct_matches_of(text, R"((?:^|\n)#+ ([^\n]+))")) {
    std::string anchor;
    for (const char c : heading) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isalnum(letter) || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(letter));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    anchors.insert(anchor);
  }
  return anchors;
}

}  // namespace

// What users copy is what is compiled and run.
TEST(Readme, ExamplesAreThoseOfTheTutorials) {
  std::string tutorials;
  for (const auto& entry : fs::directory_iterator(kRoot / "tutorial")) {
    if (entry.path().extension() == ".cc") {
      tutorials += text_of(entry.path());
    }
  }
  const std::string readme = text_of(kRoot / "README.md");
  const std::string begin = "```cpp\n";
  int examples = 0;
  for (size_t at = readme.find(begin); at != std::string::npos; at = readme.find(begin, at)) {
    at += begin.size();
    const std::string example = readme.substr(at, readme.find("```", at) - at);
    EXPECT_NE(tutorials.find(example), std::string::npos) << example;
    examples++;
  }
  EXPECT_EQ(examples, 3);
}

TEST(Readme, LinksOfTheDocumentsLeadSomewhere) {
  int files = 0;
  int fragments = 0;
  std::map<fs::path, std::set<std::string>> anchors;
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    for (const std::string& link : distinct_matches_of(text, R"(\]\(([^)*\s]+)\))")) {
      if (link.find("://") != std::string::npos) {
        continue;
      }
      const size_t hash = link.find('#');
      const std::string file = link.substr(0, hash);
      const fs::path target = file.empty() ? path : path.parent_path() / file;
      EXPECT_TRUE(fs::exists(target)) << path << ": " << link;
      files++;
      if (hash != std::string::npos && fs::exists(target)) {
        const auto [known, is_new] = anchors.try_emplace(target);
        if (is_new) {
          known->second = anchors_of(text_of(target));
        }
        EXPECT_EQ(known->second.count(link.substr(hash + 1)), 1U) << path << ": " << link;
        fragments++;
      }
    }
  }
  EXPECT_GT(files, 30);
  EXPECT_GT(fragments, 3);
}

TEST(Readme, HeadersThatTheDocumentsNameAreThere) {
  for (const char* name : {"README.md", "docs/tasks.md", "docs/migration.md", "docs/recipes.md"}) {
    for (const std::string& header : distinct_matches_of(text_of(kRoot / name), R"(`(\w+\.h)`)")) {
      EXPECT_TRUE(fs::exists(kRoot / "include/workflow" / header)) << name << ": " << header;
    }
  }
}

TEST(Readme, NamesEveryHeader) {
  const std::string text = text_of(kRoot / "README.md");
  for (const auto& entry : fs::directory_iterator(kRoot / "include/workflow")) {
    if (entry.path().extension() == ".h") {
      EXPECT_NE(text.find("`" + entry.path().filename().string() + "`"), std::string::npos)
          << entry.path();
    }
  }
}

TEST(Readme, EveryProgramIsInTheListOfTutorials) {
  const std::string list = text_of(kRoot / "tutorial/README.md");
  for (const auto& entry : fs::directory_iterator(kRoot / "tutorial")) {
    if (entry.path().extension() == ".cc" || entry.is_directory()) {
      EXPECT_NE(list.find("[" + entry.path().stem().string() + "]("), std::string::npos)
          << entry.path();
    }
  }
}

TEST(Readme, EveryFunctionThatMakesTasksIsOnThePageOfTasks) {
  const std::string page = text_of(kRoot / "docs/tasks.md");
  for (const char* header : {"WFTaskFactory.h", "Workflow.h", "WFGraphTask.h"}) {
    const std::string text = text_of(kRoot / "include/workflow" / header);
    for (const std::string& function :
         distinct_matches_of(text, R"(\b(create_\w+|[a-z]+_by_name)\()")) {
      EXPECT_NE(page.find(function), std::string::npos) << header << ": " << function;
    }
  }
}

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace {

// The compiler is given the full path of this file.
const std::filesystem::path kRoot =
    std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

// What users copy is what is compiled and run.
TEST(Readme, ExamplesAreThoseOfTheTutorials) {
  std::string tutorials;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "tutorial")) {
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
  EXPECT_EQ(examples, 2);
}

TEST(Readme, LinksOfTheDocumentsLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#*\s]+)(#[^)]*)?\))");
  int links = 0;
  for (const char* name :
       {"README.md", "docs/README.md", "docs/architecture.md", "docs/concurrency.md",
        "docs/http-server.md", "tutorial/demo/README.md"}) {
    const std::filesystem::path path = kRoot / name;
    const std::string text = text_of(path);
    ASSERT_FALSE(text.empty()) << name;
    for (std::sregex_iterator each(text.begin(), text.end(), link), end; each != end; ++each) {
      const std::string target = (*each)[1];
      if (target.find("://") == std::string::npos) {
        EXPECT_TRUE(std::filesystem::exists(path.parent_path() / target)) << name << ": " << target;
        links++;
      }
    }
  }
  EXPECT_GT(links, 10);
}

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/Text.h"

// docs/recipes.md shows what is compiled and run here, and nothing else.

namespace {

namespace fs = std::filesystem;
using test_support::text_of;

const fs::path kFolder = fs::path(SOURCE_TREE) / "test" / "recipes";

constexpr size_t kMaxLines = 25;

// What stands between each line `begin` and the next line `end`.
std::vector<std::string> parts_of(const fs::path& path, std::string_view begin,
                                  std::string_view end) {
  std::vector<std::string> parts;
  bool inside = false;
  std::istringstream lines(text_of(path));
  for (std::string line; std::getline(lines, line);) {
    if (!inside && line == begin) {
      inside = true;
      parts.emplace_back();
    } else if (inside && line == end) {
      inside = false;
    } else if (inside) {
      parts.back() += line + "\n";
    }
  }
  EXPECT_FALSE(inside) << path << ": no \"" << end << "\"";
  return parts;
}

std::vector<std::string> sorted(std::vector<std::string> parts) {
  std::sort(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> recipes() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".cc") {
      const auto parts = parts_of(entry.path(), "// Recipe", "// End of recipe");
      all.insert(all.end(), parts.begin(), parts.end());
    }
  }
  return all;
}

TEST(RecipesPage, ShowsTheCodeThatIsTested) {
  const fs::path page = kFolder.parent_path().parent_path() / "docs/recipes.md";
  const std::vector<std::string> tested = sorted(recipes());
  const std::vector<std::string> shown = sorted(parts_of(page, "```cpp", "```"));
  EXPECT_GT(tested.size(), 10U);
  std::vector<std::string> stale;
  std::set_difference(shown.begin(), shown.end(), tested.begin(), tested.end(),
                      std::back_inserter(stale));
  std::vector<std::string> missing;
  std::set_difference(tested.begin(), tested.end(), shown.begin(), shown.end(),
                      std::back_inserter(missing));
  for (const std::string& code : stale)
    ADD_FAILURE() << page << " shows what no file in " << kFolder << " has:\n" << code;
  for (const std::string& code : missing)
    ADD_FAILURE() << page << " does not show:\n" << code;
}

TEST(RecipesPage, RecipesAreShort) {
  for (const std::string& code : recipes()) {
    std::istringstream lines(code);
    size_t count = 0;
    for (std::string line; std::getline(lines, line);)
      count += line.empty() ? 0 : 1;
    EXPECT_LE(count, kMaxLines) << code;
  }
}

}  // namespace

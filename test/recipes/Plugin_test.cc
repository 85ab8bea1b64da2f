#include <gtest/gtest.h>

#include "support/Program.h"

// PLUGIN_HOST is the program of the recipe (PluginHost.cc), and PLUGIN its plugin (Plugin.cc).

namespace recipes_test {
namespace {

test_support::ProgramResult run_host(const char* plugin) {
  return test_support::run_program(PLUGIN_HOST, {plugin}, {.keeps_environment = true});
}

TEST(PluginRecipe, TheProgramCancelsATimerOfThePluginByName) {
  const auto result = run_host(PLUGIN);
  EXPECT_EQ(result.output, "cancelled\n");
  EXPECT_EQ(result.exit_code, 0);
}

TEST(PluginRecipe, AFileThatIsMissingIsReported) {
  const auto result = run_host("/nowhere/plugin.so");
  EXPECT_NE(result.output.find("/nowhere/plugin.so"), std::string::npos) << result.output;
  EXPECT_EQ(result.exit_code, 0);
}

}  // namespace
}  // namespace recipes_test

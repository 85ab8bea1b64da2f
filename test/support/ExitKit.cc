#include "support/ExitKit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "util/Time.h"

namespace exit_kit {

namespace {

constexpr const char* kScenarioVariable = "WORKFLOW_EXIT_SCENARIO";
constexpr const char* kTookLabel = "took_us=";

}  // namespace

int run(std::span<const Scenario> scenarios, int argc, char** argv) {
  if (scenario_name().empty()) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  for (const Scenario& scenario : scenarios) {
    if (scenario_name() == scenario.name) {
      scenario.play();
      return EXIT_SUCCESS;
    }
  }
  say("no such scenario");
  return EXIT_FAILURE;
}

std::string_view scenario_name() {
  const char* name = std::getenv(kScenarioVariable);
  return name ? name : "";
}

void begin_exit(std::function<void()> report) {
  last_word.word = [report = std::move(report), began_ns = workflow::monotonic_ns()] {
    const int64_t took_ns = workflow::monotonic_ns() - began_ns;
    report();
    say(kTookLabel + std::to_string(took_ns / workflow::kNsPerUs));
  };
}

std::string Outcomes::text() const {
  std::string text;
  const auto mention = [&text](int count, const char* outcome) {
    if (count > 0) {
      text += (text.empty() ? ": " : ", ") + std::to_string(count) + " " + outcome;
    }
  };
  mention(succeeded, "succeeded");
  mention(aborted, "aborted");
  mention(cancelled, "cancelled");
  mention(failed, "failed");
  return std::to_string(called) + " called" + text;
}

Outcomes& outcomes() {
  static Outcomes& outcomes = *new Outcomes;
  return outcomes;
}

void say_outcomes_at_the_end() {
  last_word.word = [] { say(outcomes().text()); };
}

std::string play(const std::string& scenario, const Variables& variables) {
  Variables all = variables;
  all.push_back(kScenarioVariable + ("=" + scenario));
  const std::chrono::seconds most(test_support::kSanitized ? 500 : 100);
  const test_support::ChildResult result = test_support::run_self(all, most);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

std::string play_promptly(const std::string& scenario, const Variables& variables,
                          std::chrono::milliseconds limit) {
  const std::string output = play(scenario, variables);
  const size_t at = output.find(kTookLabel);
  if (at == std::string::npos) {
    ADD_FAILURE() << output;
    return output;
  }
  const std::chrono::microseconds took(
      std::stoll(output.substr(at + std::string_view(kTookLabel).size())));
  std::printf("exit took %lld us\n", static_cast<long long>(took.count()));
  EXPECT_LT(took, test_support::kSanitized ? std::chrono::seconds(20) : limit) << output;
  return output.substr(0, at);
}

int times(int by_default) {
  return static_cast<int>(test_support::env_number("WORKFLOW_EXIT_TIMES", by_default));
}

}  // namespace exit_kit

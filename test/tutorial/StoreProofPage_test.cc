#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "support/Text.h"

namespace {

namespace fs = std::filesystem;
using test_support::text_of;

// The cases of a folder of tests, as "Suite.Case".
std::set<std::string> cases_of(const fs::path& folder) {
  static const std::regex kCase(R"(\nTEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  std::set<std::string> cases;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().string().find("_test.cc") == std::string::npos) continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator each(text.begin(), text.end(), kCase), end; each != end; ++each) {
      cases.insert((*each)[1].str() + "." + (*each)[2].str());
    }
  }
  return cases;
}

}  // namespace

// docs/store-proof.md names tests that are there.
TEST(StoreProofPage, NamesTestsThatAreThere) {
  const fs::path root = SOURCE_TREE;
  const std::string page = text_of(root / "docs/store-proof.md");
  static const std::regex kName(R"(`(\w+)/(\w+\.\w+)`)");
  std::map<std::string, std::set<std::string>> known;
  int names = 0;
  for (std::sregex_iterator each(page.begin(), page.end(), kName), end; each != end; ++each) {
    const std::string area = (*each)[1];
    if (known.count(area) == 0) {
      ASSERT_TRUE(fs::exists(root / "test" / area)) << *each->begin();
      known[area] = cases_of(root / "test" / area);
    }
    EXPECT_EQ(known[area].count((*each)[2]), 1U) << *each->begin();
    names++;
  }
  EXPECT_GT(names, 150);
}

// A suite that is part of the proof of the store is on the page.
TEST(StoreProofPage, NamesEachSuiteAboutFaults) {
  const fs::path root = SOURCE_TREE;
  const std::string page = text_of(root / "docs/store-proof.md");
  const std::set<std::string> cases = cases_of(root / "test/store");
  for (const char* const suite : {"StoreKills",
                                  "StoreForks",
                                  "StoreSetClocks",
                                  "StoreBacklogs",
                                  "StoreFaultyDisks",
                                  "StoreLastingFaults",
                                  "StoreFullDisks",
                                  "StoreFullDisksLedger",
                                  "StoreBrokenDisksLedger",
                                  "StoreFaultyServers",
                                  "StoreForgettingServers",
                                  "KillLedger",
                                  "SqliteFaults",
                                  "SqliteDamage",
                                  "StoreHistory",
                                  "StoreStopped",
                                  "StoreStoppedServer",
                                  "StoreClocks",
                                  "StoreServerClock",
                                  "StoreSkew",
                                  "RedisStoreReplaced",
                                  "StoreMemory",
                                  "StoreDescriptors",
                                  "SqliteRemoved",
                                  "SqlitePower",
                                  "StoreRestart",
                                  "RedisStoreReceipts",
                                  "SqliteProcesses",
                                  "StoreVerdicts",
                                  "StoreVerdictsInDoubt",
                                  "StoreSteps",
                                  "StoreLyingServers",
                                  "StoreCancelled",
                                  "StoreRules",
                                  "BackendRules",
                                  "RedisStoreReplicaMeanwhile",
                                  "RedisStoreSettings",
                                  "SqliteLog",
                                  "SqliteFullDisk",
                                  "SqliteRemovedProcesses",
                                  "SqliteLostLog"}) {
    bool is_there = false;
    for (const std::string& name : cases) {
      is_there |= name.rfind(std::string(suite) + ".", 0) == 0 &&
                  page.find("`store/" + name + "`") != std::string::npos;
    }
    EXPECT_TRUE(is_there) << suite;
  }
}

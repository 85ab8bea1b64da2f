#include "store/HistoryChecker.h"

#include <gtest/gtest.h>

#include <string>

// The checker refuses what cannot be, and accepts what can.

namespace {

using store_test::history::HistoryChecker;
using store_test::history::Reader;

// "": the history is linearizable.
std::string wrong_with(const std::string& text, bool dies_with_worker = true) {
  Reader reader;
  reader.read(text);
  size_t unchecked = 0;
  std::string wrong = HistoryChecker::check_all(reader, dies_with_worker, &unchecked);
  EXPECT_EQ(unchecked, 0U);
  return wrong;
}
bool is_linearizable(const std::string& text, bool dies_with_worker = true) {
  return wrong_with(text, dies_with_worker).empty();
}

// A timer that waits: number 5, due at 1000.
std::string stored() {
  return "? a 1 10 schedule tea policy=append due=1000\n"
         "! a 1 20 ok timer=5\n";
}
// It is claimed at 2000, until 3000.
std::string claimed() {
  return stored() +
         "? a 2 1990 claim tea lease=1000\n"
         "! a 2 2010 ok claimed=5:7:1:1000:3000\n";
}

TEST(HistoryChecker, AcceptsWhatOneWorkerSees) {
  EXPECT_EQ(wrong_with(claimed() + "? a 3 2100 cancel tea max=9\n"
                                   "! a 3 2200 ok answers=running:5:1:7\n"
                                   "? a 4 2300 finish tea timer=5 fence=7 how=retry next=2500\n"
                                   "! a 4 2400 ok accepted=1\n"
                                   "? a 5 2500 cancel tea max=9\n"
                                   "! a 5 2600 ok answers=done:5:cancelled\n"
                                   "? a 6 2700 count tea\n"
                                   "! a 6 2800 ok count=0\n"),
            "");
}

TEST(HistoryChecker, RefusesAStaleRead) {
  const std::string cancelled = stored() +
                                "? a 2 30 cancel tea max=9\n"
                                "! a 2 40 ok answers=won:5:0\n";
  EXPECT_TRUE(
      is_linearizable(cancelled + "? b 1 35 list tea\n! b 1 50 ok timers=5:waiting:0:1000\n"));
  EXPECT_FALSE(
      is_linearizable(cancelled + "? b 1 45 list tea\n! b 1 50 ok timers=5:waiting:0:1000\n"));
  EXPECT_FALSE(is_linearizable(cancelled + "? b 1 45 count tea\n! b 1 50 ok count=1\n"));
}

TEST(HistoryChecker, RefusesTwoWinners) {
  const std::string two = stored() +
                          "? a 2 30 cancel tea max=9\n"
                          "? b 1 31 cancel tea max=9\n"
                          "! a 2 40 ok answers=won:5:0\n";
  EXPECT_TRUE(is_linearizable(two + "! b 1 41 ok answers=done:5:cancelled\n"));
  EXPECT_FALSE(is_linearizable(two + "! b 1 41 ok answers=won:5:0\n"));
  // A cancel and a run.
  const std::string run = stored() +
                          "? a 2 1990 cancel tea max=9\n"
                          "? b 1 1995 claim tea lease=1000\n"
                          "! a 2 2010 ok answers=won:5:0\n";
  EXPECT_TRUE(is_linearizable(run + "! b 1 2020 ok claimed=\n"));
  EXPECT_FALSE(is_linearizable(run + "! b 1 2020 ok claimed=5:7:1:1000:3000\n"));
}

TEST(HistoryChecker, RefusesALostSchedule) {
  EXPECT_FALSE(is_linearizable(stored() + "? b 1 30 count tea\n! b 1 40 ok count=0\n"));
  EXPECT_FALSE(
      is_linearizable(stored() + "? b 1 30 cancel tea max=9\n! b 1 40 ok answers=unknown\n"));
  EXPECT_FALSE(
      is_linearizable(stored() + "? b 1 1500 claim tea lease=10\n! b 1 1600 ok claimed=\n"));
}

TEST(HistoryChecker, RefusesAnEarlyRunAndASecondLease) {
  EXPECT_FALSE(is_linearizable(stored() + "? b 1 900 claim tea lease=10\n"
                                          "! b 1 999 ok claimed=5:7:1:1000:1009\n"));
  const std::string again = "? b 1 2500 claim tea lease=1000\n! b 1 2600 ok claimed=";
  EXPECT_TRUE(is_linearizable(claimed() + again + "\n"));
  EXPECT_FALSE(is_linearizable(claimed() + again + "5:8:2:1000:3550\n"));
  const std::string late = "? b 1 3000 claim tea lease=1000\n! b 1 3100 ok claimed=5:";
  EXPECT_TRUE(is_linearizable(claimed() + late + "8:2:1000:4050\n"));
  EXPECT_FALSE(is_linearizable(claimed() + late + "7:2:1000:4050\n")) << "an old fence";
  EXPECT_FALSE(is_linearizable(claimed() + late + "8:1:1000:4050\n")) << "a lost attempt";
}

TEST(HistoryChecker, RefusesAFinishWithAnOldFence) {
  const std::string finish =
      "? b 1 2500 finish tea timer=5 fence=6 how=done next=never\n! b 1 2600 ok";
  EXPECT_TRUE(is_linearizable(claimed() + finish + " accepted=0\n"));
  EXPECT_FALSE(is_linearizable(claimed() + finish + " accepted=1\n"));
  const std::string late =
      "? b 1 3000 finish tea timer=5 fence=7 how=done next=never\n! b 1 3100 ok";
  EXPECT_TRUE(is_linearizable(claimed() + late + " accepted=0\n"));
  EXPECT_FALSE(is_linearizable(claimed() + late + " accepted=1\n"));
}

TEST(HistoryChecker, ALeaseThatEndsMeanwhileMayBeOverOrNot) {
  const std::string cancel = "? b 1 2900 cancel tea max=9\n! b 1 3100 ok answers=";
  EXPECT_TRUE(is_linearizable(claimed() + cancel + "running:5:1:7\n"));
  EXPECT_TRUE(is_linearizable(claimed() + cancel + "won_after:5:1\n"));
  EXPECT_FALSE(is_linearizable(claimed() + cancel + "won:5:1\n"));
}

TEST(HistoryChecker, ACancelledRunMayEndWithItsLeaseAtAnyClaim) {
  const std::string marked =
      claimed() + "? b 1 2100 cancel tea max=9\n! b 1 2200 ok answers=running:5:1:7\n";
  const std::string count = "? b 2 3500 count tea\n! b 2 3600 ok count=";
  EXPECT_TRUE(is_linearizable(marked + count + "1\n"));
  EXPECT_TRUE(is_linearizable(marked + count + "0\n"));
  EXPECT_FALSE(is_linearizable(marked + "? b 2 2500 count tea\n! b 2 2600 ok count=0\n"));
  EXPECT_FALSE(is_linearizable(marked + "? b 2 3500 claim tea lease=10\n"
                                        "! b 2 3600 ok claimed=5:8:2:1000:3560\n"));
}

TEST(HistoryChecker, ARunHasOneSuccessorWhoseNumberIsToldLater) {
  const std::string moved = claimed() +
                            "? b 1 2100 reschedule tea max=9 due=2500\n"
                            "! b 1 2200 ok answers=after_run:5:1:7\n"
                            "? b 2 2210 reschedule tea max=9 due=2600\n"
                            "! b 2 2220 ok answers=after_run:5:1:7\n";
  const std::string list = "? b 3 2650 list tea\n! b 3 2660 ok timers=5:running:1:1000,";
  EXPECT_EQ(wrong_with(moved + list + "9:blocked:0:2600\n"), "");
  EXPECT_FALSE(is_linearizable(moved + list + "4:blocked:0:2600\n")) << "an older number";
  EXPECT_FALSE(is_linearizable(moved + list + "9:blocked:0:2500\n")) << "the first date";
  EXPECT_FALSE(is_linearizable(moved + list + "9:waiting:0:2600\n")) << "beside the run";
  const std::string done = moved +
                           "? a 3 2700 finish tea timer=5 fence=7 how=done next=never\n"
                           "! a 3 2710 ok accepted=1\n"
                           "? a 4 2720 claim tea lease=100\n"
                           "! a 4 2730 ok claimed=";
  EXPECT_EQ(wrong_with(done + "9:8:1:2600:2825\n"), "");
  EXPECT_FALSE(is_linearizable(done + "\n"));
}

TEST(HistoryChecker, WhatIsInDoubtHasHappenedOrNot) {
  const std::string doubt = "? k 1 30 cancel tea max=9\nx k 100\n";
  const std::string early = "? b 1 50 count tea\n! b 1 60 ok count=";
  EXPECT_TRUE(is_linearizable(stored() + doubt + early + "1\n"));
  EXPECT_TRUE(is_linearizable(stored() + doubt + early + "0\n"));
  const std::string late = "? b 2 150 count tea\n! b 2 160 ok count=";
  EXPECT_TRUE(is_linearizable(stored() + doubt + early + "1\n" + late + "1\n"));
  EXPECT_TRUE(is_linearizable(stored() + doubt + early + "0\n" + late + "0\n"));
  EXPECT_FALSE(is_linearizable(stored() + doubt + early + "0\n" + late + "1\n"));
  // It has not happened by 120, and its worker is dead since 100; but a server might still do it.
  const std::string between = "? b 2 110 count tea\n! b 2 120 ok count=1\n";
  EXPECT_TRUE(is_linearizable(stored() + doubt + late + "0\n"));
  const std::string then = "? b 3 150 count tea\n! b 3 160 ok count=0\n";
  EXPECT_FALSE(is_linearizable(stored() + doubt + between + then, true));
  EXPECT_TRUE(is_linearizable(stored() + doubt + between + then, false));
}

TEST(HistoryChecker, ATimerThatADeadWorkerHasStoredIsOne) {
  const std::string doubt = "? k 1 10 schedule tea policy=keep due=50\nx k 100\n";
  const std::string claim = "? b 1 150 claim tea lease=1000\n! b 1 160 ok claimed=";
  EXPECT_TRUE(is_linearizable(doubt + claim + "\n"));
  EXPECT_TRUE(is_linearizable(doubt + claim + "3:4:1:50:1155\n"));
  EXPECT_FALSE(is_linearizable(doubt + claim + "3:4:1:51:1155\n")) << "another date";
  EXPECT_FALSE(is_linearizable(doubt + claim + "3:4:1:50:1155,5:5:1:50:1155\n")) << "two";
}

TEST(HistoryChecker, ALeaseOfADeadWorkerEnds) {
  const std::string doubt = stored() + "? k 1 2000 claim tea lease=1000\nx k 2100\n";
  const std::string cancel = "? b 1 2500 cancel tea max=9\n! b 1 2600 ok answers=";
  EXPECT_TRUE(is_linearizable(doubt + cancel + "running:5:1:7\n"));
  EXPECT_TRUE(is_linearizable(doubt + cancel + "won:5:0\n"));
  EXPECT_FALSE(is_linearizable(doubt + cancel + "won_after:5:1\n"));
  const std::string late = "? b 1 3150 cancel tea max=9\n! b 1 3160 ok answers=";
  EXPECT_TRUE(is_linearizable(doubt + late + "won_after:5:1\n"));
  EXPECT_FALSE(is_linearizable(doubt + late + "running:5:1:7\n"));
}

TEST(HistoryChecker, OnlyAClaimInPartsMayLeaveSomethingOutAndSaysSo) {
  const std::string two = stored() +
                          "? a 2 30 schedule tea policy=append due=900\n"
                          "! a 2 40 ok timer=6\n";
  const std::string claim = "? b 1 1990 claim tea lease=1000 parts=";
  const std::string one = "\n! b 1 2010 ok claimed=6:7:1:900:3000 more=";
  EXPECT_TRUE(is_linearizable(two + claim + "1" + one + "1\n"));
  EXPECT_FALSE(is_linearizable(two + claim + "1" + one + "0\n"));
  EXPECT_FALSE(is_linearizable(two + claim + "0" + one + "1\n"));
  EXPECT_FALSE(is_linearizable(two + claim + "0" + one + "0\n"));
}

TEST(HistoryChecker, NamesAreCheckedApart) {
  EXPECT_EQ(wrong_with(stored() + "? b 1 30 count coffee\n! b 1 40 ok count=0\n"), "");
  const std::string wrong = wrong_with(stored() + "? b 1 30 count coffee\n! b 1 40 ok count=1\n");
  EXPECT_EQ(wrong.substr(0, 7), "coffee:");
}

// Each of twenty schedules may or may not have happened.
TEST(HistoryChecker, GivesUpWhereTooMuchIsPossibleAndSaysSo) {
  std::string text = stored();
  for (int i = 1; i <= 20; i++) {
    text += "? b " + std::to_string(i) +
            " 30 schedule tea policy=append due=" + std::to_string(5000 + i) + "\n";
  }
  Reader reader;
  reader.read(text +
              "? a 2 40 count tea\n"
              "! a 2 50 ok count=1\n");
  size_t unchecked = 0;
  // The usual limit is reached in the same way, after 12 s.
  const size_t limit = 500;
  EXPECT_EQ(HistoryChecker::check_all(reader, false, &unchecked, limit), "");
  EXPECT_EQ(unchecked, 21U);
}

}  // namespace

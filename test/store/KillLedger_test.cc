#include "store/KillLedger.h"

#include <gtest/gtest.h>

#include <string>

// That the ledger of the tests that kill processes finds each kind of lie.

namespace {

using store_test::KillLedger;

// a runs; b is cancelled in time; c was in doubt, and is moved while it runs; d loses its process
// and runs again; e was in doubt, and was not stored; f asks for another run.
const std::string kTruth =
    "? 1 1 schedule a 100\n"
    "! 1 1 50 file ok 1 \n"
    "s a 1 100 105 11 1000 0\n"
    "? 1 2 schedule b 200\n"
    "! 1 2 50 file ok 2 \n"
    "? 1 3 cancel b\n"
    "! 1 3 50 file ok 0 won:2:0,\n"
    "? 1 4 schedule c 300\n"
    "a 1 4 ok 3 \n"
    "a 1 4 ok 3 \n"
    "s c 3 300 300 12 1000 0\n"
    "? 1 5 reschedule c 400\n"
    "! 1 5 50 file ok 0 after_run:3:1,\n"
    "s c 4 400 400 13 1000 0\n"
    "? 1 6 schedule d 500\n"
    "! 1 6 50 file ok 5 \n"
    "s d 5 500 500 14 1000 0\n"
    "s d 5 500 1500 15 1000 0\n"
    "? 1 7 schedule e 600\n"
    "a 1 7 ok 0 unknown:0:0,\n"
    "a 1 7 ok 0 unknown:0:0,\n"
    "? 1 8 schedule f 700\n"
    "! 1 8 50 file ok 7 \n"
    "s f 7 700 700 16 1000 1\n"
    "s f 7 700 800 17 1000 0\n"
    "? 1 9 schedule g 900\n"
    "! 1 9 50 file ok 8 \n"
    "? 1 10 reschedule g 800\n"
    "! 1 10 50 file ok 0 won:8:0,\n"
    "s g 8 800 800 18 1000 0\n";

std::string check(const std::string& text, const KillLedger::Rules& rules = {}) {
  KillLedger ledger(rules);
  ledger.read(text);
  return ledger.check();
}

// What is found when `from` is replaced.
std::string check_with(const std::string& from, const std::string& to) {
  std::string text = kTruth;
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  return check(text);
}

TEST(KillLedger, ATruthfulStoreIsNotBlamed) {
  EXPECT_EQ(check(kTruth), "");
  EXPECT_EQ(check(kTruth + "s a 1 100"), "");  // cut by the kill
}

TEST(KillLedger, ATimerThatWasLostIsFound) {
  EXPECT_EQ(check_with("s a 1 100 105 11 1000 0\n", ""), "a (1) was stored, and has not run");
  EXPECT_EQ(check_with("s c 3 300 300 12 1000 0\n", ""), "c (3) was stored, and has not run");
  EXPECT_EQ(check_with("s c 4 400 400 13 1000 0\n", ""), "c (3) has no successor");
  EXPECT_EQ(check_with("s f 7 700 800 17 1000 0\n", ""),
            "f (7) has asked for another run, and had none");
}

TEST(KillLedger, ARunThatIsEarlyOrThatNobodyAskedForIsFound) {
  EXPECT_EQ(check_with("s a 1 100 105", "s a 1 100 99"), "a (1) has run 1 us early");
  EXPECT_EQ(check_with("s a 1 100", "s a 1 90"), "a (1) has run for a time that nobody asked for");
  EXPECT_EQ(check(kTruth + "s e 6 600 600 20 1000 0\n"), "e (6) was not stored, and has run");
  EXPECT_EQ(check_with("s g 8 800 800", "s g 8 900 900"), "g (8) was moved, and has run");
}

TEST(KillLedger, ARunOfWhatWasCancelledIsFound) {
  EXPECT_EQ(check(kTruth + "s b 2 200 200 20 1000 0\n"),
            "b (2) was cancelled after 0 runs, and has had 1");
  const std::string cancel = "? 1 20 cancel d\n! 1 20 50 file ok 0 won_after:5:";
  EXPECT_EQ(check(kTruth + cancel + "1,\n"), "d (5) was cancelled after 1 runs, and has had 2");
  EXPECT_EQ(check(kTruth + cancel + "2,\n"), "");
}

TEST(KillLedger, TwoTruthsAreFound) {
  EXPECT_EQ(check_with("a 1 4 ok 3 \n", "a 1 4 ok 0 unknown:0:0,\n"),
            "schedule of c has two answers: ok 0 unknown:0:0, and ok 3 ");
  EXPECT_EQ(check_with("a 1 4 ok 3 \n", ""),
            "schedule of c is in doubt, and was not asked for twice");
  EXPECT_EQ(check(kTruth + "a 1 2 ok 9 \n"), "schedule of b has two answers: ok 2  and ok 9 ");
  EXPECT_EQ(check(kTruth + "a 1 2 refused 61\n"), "schedule of b cannot be asked for: refused 61");
}

// Eight requests of its session came later than that of b.
TEST(KillLedger, OnlyWhatBecameOfOldRequestsMayBeForgotten) {
  const std::string text =
      kTruth + "? 2 1 cancel x\n! 2 1 50 file ok 0 unknown:0:0,\n" + "a 1 2 refused 61\n";
  KillLedger::Rules rules;
  rules.remembered = 8;
  EXPECT_EQ(check(text, rules), "");
  rules.remembered = 9;
  EXPECT_EQ(check(text, rules), "schedule of b cannot be asked for: refused 61");
  // All sessions together have four times as many.
  std::string others;
  for (int i = 0; i < 25; i++) {
    others += "? 3 " + std::to_string(i) + " cancel x\n! 3 " + std::to_string(i) +
              " 50 file ok 0 unknown:0:0,\n";
  }
  EXPECT_EQ(check(text + others, rules), "");
  rules.remembered = 10;
  EXPECT_EQ(check(text + others, rules), "schedule of b cannot be asked for: refused 61");
}

TEST(KillLedger, TwoLeasesAtATimeAreFound) {
  EXPECT_EQ(check_with("s d 5 500 1500", "s d 5 500 1499"),
            "d (5) has run during the lease of an earlier run");
  EXPECT_EQ(check_with("1500 15 1000", "1500 14 1000"), "d (5) has had the fence 14 twice");
  EXPECT_EQ(check_with("s c 4 400 400 13", "s c 4 400 400 12"), "c (4) has had the fence 12 twice");
  EXPECT_EQ(check_with("1500 15 1000", "1500 10 1000"),
            "d (5) has had a smaller fence in a later run");
  // It has run at 500 with the fence 14, and a process that was stopped begins the run of the fence
  // 10: with a lease, or when that has ended.
  EXPECT_EQ(check(kTruth + "s d 5 500 400500 10 1 0\n"),
            "d (5) has had a smaller fence in a later run");
  EXPECT_EQ(check(kTruth + "s d 5 500 400500 10 0 0\n"), "");
  EXPECT_EQ(check(kTruth + "s a 1 100 106 12 0 0\ns a 1 100 107 18 1000 0\n"),
            "a (1) has run during the lease of an earlier run");
}

TEST(KillLedger, AReceiptThatIsWorthLessIsFound) {
  EXPECT_EQ(check_with("! 1 2 50 file", "! 1 2 50 memory"), "schedule of b has the receipt memory");
}

// Processes 1 and 2 have the store open when what was stored after 60 is lost, or everything is.
// Process 3 opens it later.
class KillLedgerLosses : public testing::Test {
 protected:
  static std::string check(const std::string& kept, const std::string& first,
                           const std::string& second, const std::string& later) {
    KillLedger ledger({});
    ledger.read(kTruth + first + "l 1 " + kept + '\n');
    ledger.read(second);
    ledger.read(later);
    return ledger.check();
  }

  static inline const std::string kStored = "? 2 1 schedule x 100\n! 2 1 50 file ok 20 \n";
  static inline const std::string kStoredLater = "? 2 1 schedule x 100\n! 2 1 61 file ok 20 \n";
  static inline const std::string kWon = "? 2 2 cancel x\n! 2 2 61 file ok 0 won:20:0,\n";
  static inline const std::string kRun = "s x 20 100 160 30 1000 0\n";
};

TEST_F(KillLedgerLosses, WhatWasStoredBeforeIsNotLost) {
  EXPECT_EQ(check("60", kStored, "", ""), "x (20) was stored, and has not run");
  EXPECT_EQ(check("60", kStored, "", kRun), "");
  EXPECT_EQ(check("60", kStoredLater, "", ""), "");
  EXPECT_EQ(check("60", "", "", kStoredLater), "x (20) was stored, and has not run");
  EXPECT_EQ(check("60", kStored + "a 2 1 ok 21 \n", "", kRun),
            "schedule of x has two answers: ok 20  and ok 21 ");
}

TEST_F(KillLedgerLosses, ALossIsNoticedByWhoeverHadTheStoreOpen) {
  const std::string stored = "? 2 1 schedule x 100\n! 2 1 170 file ok 20 \n";
  EXPECT_EQ(check("60", "", "l 1 60\n" + stored, kRun),
            "schedule of x was carried out after a loss");
  EXPECT_EQ(check("60", "", stored + "l 1 60\n", kRun), "");
  EXPECT_EQ(check("60", "", "l 1 60\n? 2 1 schedule x 100\n! 2 1 170 - refused 84\n", ""), "");
}

TEST_F(KillLedgerLosses, ACancelThatIsUndoneCountsUntilThen) {
  EXPECT_EQ(check("60", kStored + kWon, "", kRun), "");
  EXPECT_EQ(check("60", kStored + kWon + kRun, "", ""),
            "x (20) was cancelled after 0 runs, and has had 1");
  EXPECT_EQ(check("61", kStored + kWon, "", kRun),
            "x (20) was cancelled after 0 runs, and has had 1");
}

TEST_F(KillLedgerLosses, ARunThatIsUndoneMayComeAgainWithAnotherFence) {
  EXPECT_EQ(check("60", kStored + kRun, "", "s x 20 100 170 31 1000 0\n"), "");
  EXPECT_EQ(check("160", kStored + kRun, "", "s x 20 100 170 31 1000 0\n"),
            "x (20) has run during the lease of an earlier run");
  EXPECT_EQ(check("60", kStored + kRun, "", "s x 20 100 170 30 1000 0\n"),
            "x (20) has had the fence 30 twice");
}

TEST_F(KillLedgerLosses, WhatIsGoneStaysGone) {
  EXPECT_EQ(check("0", kStored, "l 1 0\n", ""), "");
  EXPECT_EQ(check("0", kStored, "l 1 0\n", kRun), "x (20) was lost, and has run");
  EXPECT_EQ(check("0", "", "l 1 0\n", kStored + kRun), "");
}

TEST(KillLedger, ARunIsEarlyByTheClockThatWasSet) {
  const std::string stored = "? 2 1 schedule x 9000000\n! 2 1 50 file ok 20 \n";
  const std::string run = "s x 20 9000000 5000000 30 1000 0\n";
  EXPECT_EQ(check(kTruth + stored + run), "x (20) has run 4000000 us early");
  EXPECT_EQ(check(kTruth + stored + run + "c 1000000 1000001 3999999\n"),
            "x (20) has run 1 us early");
  EXPECT_EQ(check(kTruth + stored + run + "c 1000000 1000001 4000000\n"), "");
  // It was set back right before that, or some time before.
  const std::string set = "c 1000000 1000001 4000000\n";
  EXPECT_EQ(check(kTruth + stored + run + set + "c 4500000 4600000 0\n"), "");
  EXPECT_EQ(check(kTruth + stored + run + set + "c 4400000 4499999 0\n"),
            "x (20) has run 4000000 us early");
}

TEST(KillLedger, ARunThatBeginsLateSaysByWhichClock) {
  const std::string stored = "? 2 1 schedule x 42000000\n! 2 1 50 file ok 20 \n";
  const std::string run = "s x 20 42000000 5000000 30 1000 0 ";
  // It was given to its process two seconds before, when the clock was still ahead.
  const std::string set = "c 1000000 1000001 40000000\nc 3000000 3000001 0\n";
  EXPECT_EQ(check(kTruth + stored + run + "42900000\n" + set), "");
  EXPECT_EQ(check(kTruth + stored + run + "2900000\n" + set), "x (20) has run 37000000 us early");
  // A run that begins now was not given so long ago.
  EXPECT_EQ(check(kTruth + stored + "s x 20 42000000 13000002 30 1000 0 42900000\n" + set),
            "x (20) has run 28999998 us early");
}

TEST(KillLedger, ALeaseLastsByTheClockThatWasSet) {
  const std::string stored = "? 2 1 schedule x 100\n! 2 1 50 file ok 20 \n";
  const std::string runs =
      "s x 20 100 2000000 30 3000000 0\n"
      "s x 20 100 4000000 31 3000000 0\n";
  const std::string during = "x (20) has run during the lease of an earlier run";
  EXPECT_EQ(check(kTruth + stored + runs), during);
  EXPECT_EQ(check(kTruth + stored + runs + "c 3000000 3000001 999999\n"), during);
  EXPECT_EQ(check(kTruth + stored + runs + "c 3000000 3000001 1000000\n"), "");
  EXPECT_EQ(check(kTruth + stored + runs + "c 1000000 1000001 1000000\n"), during);
  // It was set back before the first one began, which knows by the new clock how long it has left.
  const std::string back =
      "s x 20 100 2000000 30 1000000 0 3600900000\n"
      "s x 20 100 3000000 31 1000000 0 2900000\n";
  const std::string set = "c 100000 100001 3600000000\nc 1000000 1000001 0\n";
  EXPECT_EQ(check(kTruth + stored + back + set), "");
  // The first one begins late: it was given before the clock was set, and the other one after it.
  const std::string late =
      "s x 20 100 2000000 30 3000000 0 900000\n"
      "s x 20 100 1900000 31 3000000 0 3601000000\n";
  const std::string smaller = "x (20) has had a smaller fence in a later run";
  EXPECT_EQ(check(kTruth + stored + late), smaller);
  EXPECT_EQ(check(kTruth + stored + late + "c 1000000 1000001 3600000000\n"), "");
}

// Where faults may undo what has another receipt, and that a run has begun.
class KillLedgerUndone : public testing::Test {
 protected:
  static std::string check(const std::string& text) { return ::check(text, kRules); }
  static inline const KillLedger::Rules kRules = {
      .undoes_runs = true, .undoes_other_receipts = true, .lease_us = 1000};
};

TEST_F(KillLedgerUndone, WhatHasTheReceiptIsNotUndone) {
  EXPECT_EQ(check(kTruth), "");
  const std::string stored = "? 2 1 schedule x 100\n! 2 1 50 ";
  EXPECT_EQ(check(kTruth + stored + "file ok 20 \n"), "x (20) was stored, and has not run");
  EXPECT_EQ(check(kTruth + stored + "memory ok 20 \n"), "");
  // Nor does it run again then, if it had asked for that.
  const std::string retries = "s x 20 100 160 30 990 1\n";
  EXPECT_EQ(check(kTruth + stored + "file ok 20 \n" + retries),
            "x (20) has asked for another run, and had none");
  EXPECT_EQ(check(kTruth + stored + "memory ok 20 \n" + retries), "");
}

TEST_F(KillLedgerUndone, ARunMayHaveBegunBeforeTheCancelButNotAfterIt) {
  const std::string stored = "? 2 1 schedule x 100\n! 2 1 50 file ok 20 \n";
  const std::string won = "? 2 2 cancel x\n! 2 2 150 file ok 0 won:20:0,\n";
  EXPECT_EQ(check(kTruth + stored + won + "s x 20 100 160 30 990 0\n"), "");
  EXPECT_EQ(check(kTruth + stored + won + "s x 20 100 160 30 991 0\n"),
            "x (20) was cancelled after 0 runs, and has had 1");
  EXPECT_EQ(check(kTruth + stored + won + "s x 20 100 1160 30 0 0\n"), "");
  const std::string won_after = "? 2 2 cancel x\n! 2 2 150 file ok 0 won_after:20:1,\n";
  EXPECT_EQ(check(kTruth + stored + won_after + "s x 20 100 110 30 1000 0\n"), "");
  EXPECT_EQ(check(kTruth + stored + won_after + "s x 20 100 160 30 991 0\n"),
            "x (20) was cancelled after 0 runs, and has had 1");
}

TEST_F(KillLedgerUndone, ARunMayHaveBegunBeforeTheMoveButNotAfterIt) {
  const std::string stored = "? 2 1 schedule x 100\n! 2 1 50 file ok 20 \n";
  const std::string moved = "? 2 2 reschedule x 300\n! 2 2 150 file ok 0 won:20:0,\n";
  const std::string ran = "s x 20 300 310 31 1000 0\n";
  EXPECT_EQ(check(kTruth + stored + moved + ran + "s x 20 100 160 30 990 0\n"), "");
  EXPECT_EQ(check(kTruth + stored + moved + ran + "s x 20 100 160 30 991 0\n"),
            "x (20) was moved, and has run");
}

TEST_F(KillLedgerUndone, WhatWasInDoubtMayHaveRunAlthoughItIsGone) {
  EXPECT_EQ(check(kTruth + "s e 6 600 600 20 1000 0\n"), "");
  EXPECT_EQ(check(kTruth + "s e 6 600 590 20 1000 0\n"), "e (6) has run 10 us early");
}

TEST_F(KillLedgerUndone, AFenceIsGivenOnce) {
  EXPECT_EQ(check(kTruth + "s a 1 100 106 18 1000 0\n"), "");  // although the lease lasts
  EXPECT_EQ(check(kTruth + "s a 1 100 106 11 1000 0\n"), "a (1) has had the fence 11 twice");
}

// A series that has each date: a run gives up, one asks for another one, and a cancel comes while
// one is under way. The timer that has failed is retried.
const std::string kEach =
    "? 3 1 schedule x 100 50 each\n"
    "! 3 1 50 file ok 40 \n"
    "s x 40 100 100 50 1000 0\n"
    "d x 40 120 50\n"
    "s x 40 150 151 51 1000 2\n"
    "d x 40 155 51\n"
    "s x 41 200 200 52 1000 1\n"
    "d x 41 205 52\n"
    "s x 41 200 210 53 1000 0\n"
    "d x 41 215 53\n"
    "? 3 2 retry_failed x\n"
    "! 3 2 220 file ok 1 \n"
    "s x 40 215 221 54 1000 0\n"
    "s x 41 250 250 55 1000 0\n"
    "d x 41 258 55\n"
    "? 3 3 cancel x\n"
    "! 3 3 260 file ok 0 running:41:1,\n";
// One of which dates are left out, and which the last process ends.
const std::string kLatest =
    "? 3 4 schedule y 100 50 latest\n"
    "! 3 4 50 file ok 45 \n"
    "s y 45 100 100 56 1000 0\n"
    "d y 45 101 56\n"
    "s y 45 250 251 57 1000 0\n"
    "d y 45 260 57\n";
const std::string kEnd =
    "e\n"
    "s y 45 350 350 60 1000 0\n"
    "? 4 1 cancel y\n"
    "! 4 1 360 file ok 0 running:45:1,\n";

class KillLedgerSeries : public testing::Test {
 protected:
  // What is found when `from` is replaced, which is somewhere in all of this.
  static std::string check(const std::string& from = "", const std::string& to = "") {
    std::string text = kEach + kLatest + kEnd;
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    const size_t end = text.find(kEnd.substr(0, 2));
    KillLedger ledger({});
    ledger.read(text.substr(0, end));
    ledger.read(text.substr(end));
    return ledger.check();
  }
};

TEST_F(KillLedgerSeries, ATruthfulStoreIsNotBlamed) {
  EXPECT_EQ(check(), "");
}

TEST_F(KillLedgerSeries, ARunBetweenDatesIsFound) {
  EXPECT_EQ(check("s y 45 250", "s y 45 249"), "y (45) has run for a time that nobody asked for");
  EXPECT_EQ(check("s y 45 100", "s y 45 50"), "y (45) has run for a time that nobody asked for");
  EXPECT_EQ(check("s y 45 250 251", "s y 45 250 249"), "y (45) has run 1 us early");
  const std::string moved = "? 3 5 reschedule y 249\n! 3 5 240 file ok 0 won:45:0,\n";
  EXPECT_EQ(check("s y 45 250", moved + "s y 45 249"), "");
  // Only a timer that has failed runs for the time at which it was retried.
  EXPECT_EQ(check("s x 40 215", "s x 41 215"), "x (41) has run for a time that nobody asked for");
  EXPECT_EQ(check("s x 40 215", "s x 40 150"), "");  // its end was not taken
  EXPECT_EQ(check("s x 40 215", "s x 40 149"), "x (40) has run for a time that nobody asked for");
}

TEST_F(KillLedgerSeries, ADateThatRunsTwiceIsFound) {
  EXPECT_EQ(check("s y 45 250 251", "s y 45 100 251"), "y has run twice for the date 100");
  EXPECT_EQ(check("s y 45 350 350", "s y 45 250 1250"), "y has run twice for the date 250");
  EXPECT_EQ(check("s y 45 350 350", "s y 45 250 1251"), "");  // its lease was lost
  EXPECT_EQ(check("s x 41 200 200", "s x 41 150 200"), "x has run twice for the date 150");
  EXPECT_EQ(check("s x 41 200 200 52 1000 1", "s x 41 200 200 52 1000 0"),
            "x has run twice for the date 200");
  // It was moved back.
  const std::string moved = "? 3 5 reschedule y 100\n! 3 5 240 file ok 0 won:45:0,\n";
  EXPECT_EQ(check("s y 45 250 251", moved + "s y 45 100 251"), "");
  // It was moved back before the run had written that it has begun, or before its date had come.
  const std::string while_it_ran = "? 3 5 reschedule y 240\n! 3 5 250 file ok 0 after_run:45:1,\n";
  EXPECT_EQ(check("s y 45 350 350", while_it_ran + "s y 46 250 350"), "");
  // It was moved while an earlier run was under way, which is repeated for the latest date.
  const std::string earlier = "? 3 5 reschedule y 240\n! 3 5 245 file ok 0 after_run:45:1,\n";
  EXPECT_EQ(check("s y 45 350 350", earlier + "s y 46 250 350"), "");
  EXPECT_EQ(check("s y 45 350 350", earlier + "s y 45 250 350"),
            "y has run twice for the date 250");
  const std::string before = "? 3 5 reschedule y 240\n! 3 5 249 file ok 0 won:45:0,\n";
  EXPECT_EQ(check("s y 45 350 350", before + "s y 45 250 350"), "y has run twice for the date 250");
}

TEST_F(KillLedgerSeries, ADateThatRunsDuringAnotherOneIsFound) {
  EXPECT_EQ(check("d y 45 101 56\n", ""),
            "y has run for the date 250 during the run for the date 100");
  EXPECT_EQ(check("d y 45 101", "d y 45 252"),
            "y has run for the date 250 during the run for the date 100");
  EXPECT_EQ(check("d y 45 101", "d y 45 251"), "");
  EXPECT_EQ(check("s y 45 100 100 56 1000 0\nd y 45 101 56\n", "s y 45 100 100 56 151 0\n"), "");
  EXPECT_EQ(check("s y 45 100 100 56 1000 0\nd y 45 101 56\n", "s y 45 100 100 56 152 0\n"),
            "y has run for the date 250 during the run for the date 100");
  // So does a new timer of the series that follows a move, or a failure.
  const std::string moved = "? 3 5 reschedule y 240\n! 3 5 245 file ok 0 after_run:45:1,\n";
  EXPECT_EQ(check("s y 45 250 251", moved + "s y 46 250 251"), "");
  EXPECT_EQ(check("d y 45 101 56\ns y 45 250 251", moved + "s y 46 250 251"),
            "y has run for the date 250 during the run for the date 100");
  EXPECT_EQ(check("d x 40 155 51\n", ""),
            "x has run for the date 200 during the run for the date 150");
  // A run that asks for another one has to end, too.
  EXPECT_EQ(check("d x 41 205 52\n", ""),
            "x has run for the date 200 during the run for the date 200");
}

TEST_F(KillLedgerSeries, AMoveThatWasRefusedMovesNothing) {
  const std::string twice = "s y 45 100 261";
  const auto moved = [](const std::string& result) {
    return "? 3 5 reschedule y 100\n! 3 5 240 file ok 0 " + result + ",\n";
  };
  EXPECT_EQ(check("s y 45 250 251", moved("won:45:0") + twice), "");
  EXPECT_EQ(check("s y 45 250 251", moved("done:45:1") + twice),
            "y has run twice for the date 100");
  EXPECT_EQ(check("s y 45 250 251", moved("unknown:0:0") + twice),
            "y has run twice for the date 100");
  EXPECT_EQ(check("s y 45 250 251", "? 3 5 reschedule y 100\n! 3 5 240 - refused 16\n" + twice),
            "y has run twice for the date 100");
  const std::string asked = "a 3 5 ok 0 won:45:0,\n";
  EXPECT_EQ(check("s y 45 250 251", "? 3 5 reschedule y 100\n" + asked + asked + twice), "");
}

TEST_F(KillLedgerSeries, ADateThatIsLeftOutIsFound) {
  EXPECT_EQ(check("s x 40 100 100 50 1000 0\n", ""), "x has left out the date 100");
  // Nothing was moved.
  const std::string unknown = "? 3 5 reschedule x 70\n! 3 5 80 file ok 0 unknown:0:0,\n";
  EXPECT_EQ(check("s x 40 100 100 50 1000 0\n", unknown), "x has left out the date 100");
  EXPECT_EQ(check("50 each", "25 each"), "x has left out the date 125");
}

TEST_F(KillLedgerSeries, ASeriesThatGoesOnAfterACancelIsFound) {
  const std::string cancel = "? 3 3 cancel x\n";
  const std::string one = "s x 41 300 300 58 1000 0\nd x 41 310 58\n";
  EXPECT_EQ(check(cancel, one + cancel), "");  // it began before the cancel, and says so late
  EXPECT_EQ(check(cancel, one + "s x 41 350 350 59 1000 0\n" + cancel),
            "x was cancelled, and 2 runs have begun after that");
  EXPECT_EQ(check("running:41:1", "won:41:0"), "");
  // It was moved when the lease was over, and no process had taken it since.
  const std::string moved = "? 3 6 reschedule x 300\n! 3 6 270 file ok 0 won_after:41:1,\n";
  EXPECT_EQ(check("? 3 4 schedule y", moved + one + "s x 41 350 350 59 1000 0\n? 3 4 schedule y"),
            "");
  EXPECT_EQ(check("! 3 3 260 file ok 0 running:41:1", one + "! 3 3 260 file ok 0 won:41:0"),
            "x was cancelled, and 1 runs have begun after that");
}

TEST_F(KillLedgerSeries, ASeriesThatIsGoneIsFound) {
  EXPECT_EQ(check("running:41:1", "unknown:0:0"),
            "x recurs, and is gone although nobody has cancelled it");
  EXPECT_EQ(check("running:45:1", "done:45:1"),
            "y recurs, and is gone although nobody has cancelled it");
  EXPECT_EQ(check("s y 45 350 350 60 1000 0\n", ""), "y recurs, and has not gone on");
}

// A run gives up, and a run of the timer that goes on asks for another one. A loss of power undoes
// that, and the first timer runs for its date again.
TEST(KillLedger, WhatCameAfterAFailureIsGoneIfThatIsUndone) {
  const auto check_series = [](const std::string& runs, bool undoes_runs = true) {
    KillLedger ledger({.undoes_runs = undoes_runs, .lease_us = 1000});
    ledger.read(
        "? 3 1 schedule z 100 50 each\n! 3 1 50 file ok 60 \n"
        "s z 60 100 100 70 1000 2\nd z 60 105 70\n"
        "s z 61 150 150 71 1000 1\nd z 61 155 71\n");
    ledger.read("e\n" + runs + "? 4 1 cancel z\n! 4 1 1410 file ok 0 won:60:2,\n");
    return ledger.check();
  };
  EXPECT_EQ(check_series("s z 60 100 1300 72 1000 0\nd z 60 1305 72\n"
                         "s z 60 150 1310 73 1000 0\nd z 60 1315 73\n"),
            "");
  EXPECT_EQ(check_series("s z 60 100 1300 72 1000 0\nd z 60 1305 72\n"
                         "s z 60 150 1310 73 1000 0\nd z 60 1315 73\n",
                         false),
            "z (61) has asked for another run, and had none");
  // The first timer was retried, and the other one is lost.
  EXPECT_EQ(check_series("s z 60 1290 1300 72 1000 0\nd z 60 1305 72\n"),
            "z (61) has asked for another run, and had none");
}

TEST_F(KillLedgerSeries, AFailedTimerThatIsGoneIsFound) {
  EXPECT_EQ(check("s x 40 215 221 54 1000 0\n", ""),
            "x (40) has asked for another run, and had none");
  EXPECT_EQ(
      check("s x 41 200 200 52 1000 1\nd x 41 205 52\ns x 41 200 210 53 1000 0\nd x 41 215 53\n",
            "s x 42 200 200 52 1000 1\nd x 42 205 52\n"),
      "x (42) has asked for another run, and had none");
  EXPECT_EQ(check("! 3 2 220 file ok 1", "! 3 2 220 file ok 2"),
            "x was retried 2 times, and has failed 1");
}

// Names that have one timer: x is kept, and refused while it is there. y is replaced while it
// waits, and again while it runs.
const std::string kPolicies =
    "? 3 1 keep x 100\n"
    "! 3 1 50 file ok 40 \n"
    "? 3 2 keep x 110\n"
    "! 3 2 60 - refused 17\n"
    "s x 40 100 100 50 1000 0\n"
    "? 3 3 keep x 200\n"
    "a 3 3 ok 41 \n"
    "a 3 3 ok 41 \n"
    "s x 41 200 200 51 1000 0\n"
    "? 3 4 keep y 300\n"
    "! 3 4 210 file ok 42 \n"
    "? 3 5 replace y 310\n"
    "! 3 5 220 file ok 43 won:42:0,\n"
    "s y 43 310 310 52 1000 0\n"
    "d y 43 330 52\n"
    "? 3 6 replace y 320\n"
    "! 3 6 315 file ok 44 after_run:43:1,\n"
    "s y 44 320 330 53 1000 0\n";

std::string check_policies(const std::string& from, const std::string& to) {
  std::string text = kPolicies;
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  return check(text);
}

TEST(KillLedgerPolicies, ATruthfulStoreIsNotBlamed) {
  EXPECT_EQ(check(kPolicies), "");
}

TEST(KillLedgerPolicies, ATimerThatIsKeptBesideAnotherIsFound) {
  EXPECT_EQ(check_policies("- refused 17", "file ok 39 "), "x (39) was stored, and has not run");
  EXPECT_EQ(check_policies("a 3 3 ok 41 \na 3 3 ok 41 \n", "! 3 3 99 file ok 41 \n"),
            "x (41) was kept although there was x (40)");
  EXPECT_EQ(check_policies("a 3 3 ok 41 \na 3 3 ok 41 \n",
                           "! 3 3 150 file ok 41 \ns x 40 100 1200 54 1000 0\n"),
            "x (41) was kept although there was x (40)");
}

TEST(KillLedgerPolicies, ATimerThatIsRefusedForNothingIsFound) {
  EXPECT_EQ(check_policies("file ok 42 ", "- refused 17"), "");  // there is one later
  EXPECT_EQ(check(kPolicies + "? 3 7 keep z 1\n! 3 7 1 - refused 17\n"),
            "z was refused, and nobody has the name");
}

TEST(KillLedgerPolicies, ANameThatIsNeverFreeAgainIsFound) {
  const auto check_end = [](const std::string& answer) {
    KillLedger ledger({});
    ledger.read(kPolicies);
    ledger.read("e\n? 4 1 keep x 10000\n! 4 1 400 " + answer +
                "? 4 2 cancel x\n! 4 2 410 file ok 0 won:45:0,\n");
    return ledger.check();
  };
  EXPECT_EQ(check_end("file ok 45 \n"), "");
  EXPECT_EQ(check_end("- refused 17\n"), "x was not kept in the end: refused 17");
}

TEST(KillLedgerPolicies, ARunOfWhatWasReplacedIsFound) {
  EXPECT_EQ(check_policies("s y 43", "s y 42 300 300 54 1000 0\ns y 43"),
            "y (42) was replaced after 0 runs, and has had 1");
}

TEST(KillLedgerPolicies, ASuccessorThatDoesNotWaitIsFound) {
  EXPECT_EQ(check_policies("s y 44", "s y 43 310 1400 54 1000 0\ns y 44"),
            "y (44) has run before the end of y (43)");
  EXPECT_EQ(check_policies("d y 43 330", "d y 43 331"), "y (44) has run before the end of y (43)");
  EXPECT_EQ(check_policies("d y 43 330 52\n", ""), "y (44) has run before the end of y (43)");
  EXPECT_EQ(check_policies("s y 44 320 330 53 1000 0\n", ""), "y (44) was stored, and has not run");
  // Another one is stored later, which ought to have found it.
  EXPECT_EQ(check_policies("s y 44 320 330 53 1000 0\n",
                           "? 3 7 replace y 320\n! 3 7 350 file ok 45 done:43:1,\n"
                           "s y 45 320 350 53 1000 0\n"),
            "y (44) was stored, and has not run");
  EXPECT_EQ(check_policies("s y 44 320 330 53 1000 0\n",
                           "? 3 7 replace y 320\n! 3 7 350 file ok 45 unknown:0:0,\n"
                           "s y 45 320 350 53 1000 0\n"),
            "y (44) was stored, and has not run");
  // Another one takes its place, of which no answer tells.
  EXPECT_EQ(check_policies("s y 44 320 330 53 1000 0\n",
                           "? 3 7 replace y 320\n! 3 7 317 file ok 45 after_run:43:1,\n"
                           "s y 45 320 330 53 1000 0\n"),
            "");
}

TEST(KillLedger, ATimerThatHasFailedRunsAgainAndCountsAnew) {
  const std::string failed = "? 2 1 schedule x 100\n! 2 1 50 file ok 20 \ns x 20 100 100 30 9 2\n";
  const std::string again = "s x 20 150 160 31 1000 0\n";
  EXPECT_EQ(check(kTruth + failed), "x (20) has asked for another run, and had none");
  EXPECT_EQ(check(kTruth + failed + again), "");
  EXPECT_EQ(check(kTruth + failed + "s x 20 99 160 31 1000 0\n"),
            "x (20) has run for a time that nobody asked for");
  const std::string won = "? 2 2 cancel x\n! 2 2 155 file ok 0 won:20:0,\n";
  EXPECT_EQ(check(kTruth + failed + won), "");
  EXPECT_EQ(check(kTruth + failed + won + again),
            "x (20) was cancelled after 0 runs, and has had 1");
}

}  // namespace

#include "client/ExchangeProgress.h"

#include <gtest/gtest.h>

namespace workflow {
namespace {

constexpr int kResponseTimeout = 10;

int64_t ms(int64_t value) {
  return value * kNsPerMs;
}

// An exchange whose request was sent at once, at 100 ms.
ExchangeProgress sent(const ClientTimes& times) {
  return {times, kResponseTimeout, true, ms(100)};
}

TEST(ExchangeProgress, LimitsSendingUntilTheRequestIsSent) {
  ExchangeProgress progress({.send = 50, .whole = 30}, kResponseTimeout, false, ms(100));
  EXPECT_EQ(progress.deadline_ns(ms(120)), ms(150));
  progress.request_ended(ms(130));
  EXPECT_EQ(progress.deadline_ns(ms(130)), ms(140));
  EXPECT_EQ(progress.deadline_ns(ms(155)), ms(160)) << "the whole response may take until 160";
}

TEST(ExchangeProgress, LimitsTheFirstByteAndThenEachGap) {
  ExchangeProgress progress = sent({.first_byte = 20, .between_reads = 5});
  EXPECT_EQ(progress.deadline_ns(ms(100)), ms(120));
  EXPECT_FALSE(progress.has_received());
  progress.bytes_came(ms(110));
  EXPECT_TRUE(progress.has_received());
  EXPECT_EQ(progress.deadline_ns(ms(110)), ms(115));
}

TEST(ExchangeProgress, HasNoLimitIfAllAreUnlimited) {
  const ExchangeProgress progress = sent({.first_byte = -1, .between_reads = -1});
  EXPECT_EQ(progress.deadline_ns(ms(100)), kNever);
}

TEST(ExchangeProgress, BeginsTheReceiveTimeAnewWhenTheResponseRestarts) {
  ExchangeProgress progress = sent({.receive = 40, .between_reads = -1, .after_renew = 25});
  progress.bytes_came(ms(105));
  EXPECT_EQ(progress.deadline_ns(ms(105)), ms(140));
  progress.restarted(ms(120));
  EXPECT_EQ(progress.deadline_ns(ms(120)), ms(145));
  progress.bytes_came(ms(130));
  EXPECT_EQ(progress.deadline_ns(ms(130)), ms(160));
}

TEST(ExchangeProgress, CanBeginTheReceiveTimeWithTheFirstByte) {
  ExchangeProgress progress =
      sent({.receive = 8, .first_byte = -1, .between_reads = -1, .receive_from_first_byte = true});
  EXPECT_EQ(progress.deadline_ns(ms(500)), kNever);
  progress.bytes_came(ms(500));
  progress.bytes_came(ms(503));
  EXPECT_EQ(progress.deadline_ns(ms(503)), ms(508));
}

TEST(ExchangeProgress, DoesNotCountAPause) {
  ExchangeProgress progress = sent({.receive = 30, .between_reads = -1, .whole = 50});
  progress.bytes_came(ms(110));
  progress.paused(ms(110));
  progress.resumed(ms(1110));
  EXPECT_EQ(progress.deadline_ns(ms(1110)), ms(1140)) << "the receive time begins anew";
  progress.paused(ms(1130));
  progress.resumed(ms(1160));
  EXPECT_EQ(progress.deadline_ns(ms(1160)), ms(1180)) << "the whole time goes on";
}

TEST(ExchangeProgress, CountsOnlyTheRestOfAPauseInWhichSendingEnds) {
  ExchangeProgress progress({.between_reads = -1, .whole = 50}, kResponseTimeout, false, ms(100));
  progress.bytes_came(ms(110));
  progress.paused(ms(110));
  progress.request_ended(ms(150));
  progress.resumed(ms(180));
  EXPECT_EQ(progress.deadline_ns(ms(180)), ms(230));
}

}  // namespace
}  // namespace workflow

// WFTimer.h alone is enough for timers: to create, start, move, cancel and put them into series.
#include "workflow/WFTimer.h"

#ifdef OPENSSL_VERSION_NUMBER
#error "WFTimer.h brings OpenSSL"
#endif

size_t lease() {
  const auto callback = [](WFTimerTask* timer) {
    if (timer->get_state() == WFT_STATE_SUCCESS) timer->user_data = nullptr;
  };
  WFTimerTask* first =
      WFTimer::create(std::chrono::seconds(30), {"lease", WF_TIMER_REPLACE}, callback);
  const WFTimerHandle handle = WFTimer::handle_of(first);
  SeriesWork* series = Workflow::create_series_work(first, nullptr);
  *series << WFTimer::create(std::chrono::seconds(1), {"lease"}, callback)
          << WFTimer::create(std::chrono::seconds(1), nullptr);
  series->start();
  WFTimerPeriod period;
  period.every = std::chrono::seconds(1);
  WFTimer::create_periodic(
      period, {"tick"}, [](const WFTimerTick& tick) { tick.end(); }, callback)
      ->start();
  if (handle.reschedule(std::chrono::seconds(60)) != WFTimerMove::kWon) return 0;
  return WFTimer::cancel("lease", 1) + WFTimer::cancel("tick");
}

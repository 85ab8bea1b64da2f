#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "store/StoreRequest.h"
#include "support/TestSeed.h"

namespace store_test {

// Random requests, in the numbers of the reference.
class RandomRequests {
 public:
  // `remembered`: how many requests of each session the store remembers.
  RandomRequests(test_support::TestRandom& random, size_t remembered)
      : random_(random), remembered_(remembered) {}

  // Runs that were claimed, the newest last; most have ended.
  std::deque<workflow::RunId> runs;
  // The timers that were there lately, in the order of a list.
  std::vector<WFStoreInfo> timers;
  // Requests with ids, the newest last; some have not been carried out.
  std::deque<workflow::StoreRequest> history;

  workflow::StoreRequest any(int64_t now_us, uint64_t session) {
    workflow::StoreRequest request;
    switch (random_.below(21)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        request.what = schedule(now_us);
        break;
      case 5:
      case 6:
        request.what = cancel();
        break;
      case 7:
      case 8:
        request.what = reschedule(now_us);
        break;
      case 9:
      case 10:
      case 11:
      case 12:
        request.what = claim();
        break;
      case 13:
      case 14:
      case 15:
        request.what = finish(now_us);
        break;
      case 16:
        request.what = extend();
        break;
      case 17:
        request.what = ask(session);
        return request;
      case 18:
        request.what = failed();
        break;
      case 19:
        if (random_.one_in(3)) {
          request.what = count();
        } else {
          request.what = list();
        }
        break;
      default:
        if (history.empty()) {
          request.what = claim();
          break;
        }
        return history[history.size() - 1 - some(history.size())];
    }
    if (changes_for_user(request) && random_.below(5) < 3) {
      request.id = next_id(session);
      note(request);
    }
    return request;
  }

  // What checks every timer.
  static std::vector<workflow::StoreRequest> audit() {
    std::vector<workflow::StoreRequest> requests(3);
    requests[0].what = workflow::CountRequest();
    requests[1].what = workflow::LookRequest{{"k", "l"}, kSecondUs};
    workflow::ListRequest all;
    all.max = 10000;
    requests[2].what = all;
    return requests;
  }

 private:
  static constexpr int64_t kSecondUs = 1'000'000;
  static constexpr int64_t kHourUs = 3600 * kSecondUs;

  // 0 to n - 1, and rather a small one.
  size_t some(size_t n) { return std::min(random_.below(n), random_.below(n)); }

  static bool changes_for_user(const workflow::StoreRequest& request) {
    return request.what.index() <= 2 ||
           std::holds_alternative<workflow::FailedRequest>(request.what);
  }

  WFStoreRequestId next_id(uint64_t session) { return {session, ++last_number_[session]}; }

  void note(const workflow::StoreRequest& request) {
    history.push_back(request);
    // All of these are remembered: there are fewer than the store remembers of one session.
    if (history.size() > remembered_ / 2) {
      history.pop_front();
    }
  }

  std::string name() {
    // Any bytes may be in a name, and one may begin with another.
    static const std::string names[] = {"a", "ab", "abc", "b", std::string("\xff\0z", 3)};
    return names[random_.below(5)];
  }

  std::string kind() {
    static const char* const kinds[] = {"k", "kk", "l"};
    return kinds[random_.below(3)];
  }

  int64_t due(int64_t now_us) {
    switch (random_.below(8)) {
      case 0:
        return workflow::kNeverUs;
      case 1:
      case 2:
        return now_us;
      case 3:
        return now_us - random_.between(0, kHourUs);
      case 4:
        return now_us + random_.between(1, kHourUs);
      default:
        return now_us + random_.between(1, 5);
    }
  }

  int64_t lease() {
    static const int64_t leases[] = {1, 3, 1000, kSecondUs, 30 * kSecondUs, kHourUs};
    return leases[random_.below(6)];
  }

  size_t limit() { return random_.one_in(3) ? 1 + random_.below(2) : SIZE_MAX; }

  workflow::ScheduleRequest schedule(int64_t now_us) {
    workflow::ScheduleRequest request;
    request.spec.name = name();
    request.spec.kind = kind();
    request.spec.payload = std::string(random_.below(4), '\0') + std::to_string(random_.below(99));
    if (random_.one_in(4)) request.spec.payload += std::string(300, 'p');  // which are kept apart
    request.spec.repeat = random_.one_in(2) ? "repeat " + std::to_string(random_.below(9)) : "";
    request.spec.skip_after_us = random_.between(-1, 5);
    request.due_us = due(now_us);
    request.policy = static_cast<WFTimerPolicy>(random_.below(3));
    return request;
  }

  workflow::CancelRequest cancel() {
    workflow::CancelRequest request;
    request.name = name();
    request.max = limit();
    return request;
  }

  workflow::RescheduleRequest reschedule(int64_t now_us) {
    workflow::RescheduleRequest request;
    request.name = name();
    request.max = limit();
    request.due_us = due(now_us);
    request.changes_repeat = random_.one_in(2);
    request.repeat = request.changes_repeat ? "new repeat" : "";
    return request;
  }

  workflow::ClaimRequest claim() {
    workflow::ClaimRequest request;
    for (const char* kind : {"l", "k", "kk"}) {
      if (random_.below(4) > 0) {
        request.kinds.push_back({kind, random_.below(4), random_.below(4)});
      }
    }
    request.owner = random_.one_in(2) ? "first worker" : "second worker";
    request.lease_us = lease();
    request.fresh_us = random_.one_in(2) ? kSecondUs : random_.between(0, 3);
    return request;
  }

  workflow::RunId run() {
    return runs.empty() ? workflow::RunId() : runs[runs.size() - 1 - some(runs.size())];
  }

  workflow::FinishRequest finish(int64_t now_us) {
    workflow::FinishRequest request;
    request.run = run();
    request.how = static_cast<workflow::FinishRequest::How>(random_.below(4));
    const bool retry = request.how == workflow::FinishRequest::How::kRetry;
    request.next_us = retry || random_.one_in(2) ? due(now_us) : workflow::kNeverUs;
    if (request.how == workflow::FinishRequest::How::kFailed) {
      request.reason = "reason " + std::to_string(random_.below(9));
    }
    return request;
  }

  workflow::ExtendRequest extend() {
    workflow::ExtendRequest request;
    for (uint64_t n = random_.below(4); n > 0; --n) {
      request.runs.push_back(run());
    }
    request.lease_us = lease();
    return request;
  }

  workflow::AskRequest ask(uint64_t session) {
    workflow::AskRequest request;
    if (random_.one_in(3)) {
      // Asked before it arrives: it may come later, out of the history.
      workflow::StoreRequest late;
      late.what = cancel();
      late.id = next_id(session);
      note(late);
      request.asked = late.id;
    } else {
      const uint64_t back = random_.below(remembered_ + 4);
      const uint64_t last = last_number_[session];
      request.asked = {session, last > back ? last - back : 1};
      if (last == 0) {
        last_number_[session] = 1;
      }
    }
    return request;
  }

  workflow::FailedRequest failed() {
    workflow::FailedRequest request;
    request.name = name();
    request.remove = random_.one_in(3);
    return request;
  }

  workflow::CountRequest count() {
    workflow::CountRequest request;
    request.prefix = name();
    return request;
  }

  workflow::ListRequest list() {
    workflow::ListRequest request;
    request.prefix = random_.one_in(2) ? name() : "";
    if (!timers.empty() && random_.one_in(2)) {
      const WFStoreInfo& place = timers[random_.below(timers.size())];
      request.after_name = place.name;
      request.after_timer = place.timer;
    } else if (random_.one_in(2)) {
      request.after_name = name();
    }
    request.max = 1 + random_.below(5);
    request.failed_only = random_.one_in(3);
    return request;
  }

  test_support::TestRandom& random_;
  const size_t remembered_;
  std::map<uint64_t, uint64_t> last_number_;  // by session
};

}  // namespace store_test

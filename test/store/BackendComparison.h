#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "store/StoreRequest.h"

namespace store_test {

// Which number of the store stands for which one of the reference. The order is the same in both.
class Numbers {
 public:
  // Returns false if one of the two stands for another one, or comes at another place.
  bool pair(uint64_t reference, uint64_t real) {
    if ((reference == 0) != (real == 0)) return false;
    if (reference == 0) return true;
    const auto [at, inserted] = real_.emplace(reference, real);
    if (!inserted) return at->second == real;
    const bool after_previous = at == real_.begin() || std::prev(at)->second < real;
    const bool before_next = std::next(at) == real_.end() || real < std::next(at)->second;
    return after_previous && before_next;
  }
  uint64_t real(uint64_t reference) const {
    const auto found = real_.find(reference);
    return found == real_.end() ? 0 : found->second;
  }
  bool knows_real(uint64_t real) const {
    return std::any_of(real_.begin(), real_.end(),
                       [real](const auto& entry) { return entry.second == real; });
  }
  // Forgets all but the newest.
  void trim(size_t kept) {
    while (real_.size() > kept) {
      real_.erase(real_.begin());
    }
  }

 private:
  std::map<uint64_t, uint64_t> real_;
};

// The first difference that was found.
class Difference {
 public:
  template <class A, class B>
  void expect(const char* what, const A& reference, const B& real) {
    if (reference == real || !text_.empty()) return;
    std::ostringstream text;
    text << what << ": expected " << printed(reference) << ", but the store says " << printed(real);
    text_ = text.str();
  }
  void expect_true(const char* what, bool condition) { expect(what, true, condition); }
  const std::string& text() const { return text_; }

 private:
  template <class VALUE>
  static std::string printed(const VALUE& value) {
    return testing::PrintToString(value);
  }

  std::string text_;
};

// Compares the answers of a store with those of the reference, in whose numbers they are known from
// then on.
class BackendComparison {
 public:
  // Whether the store remembers how many runs of an ended timer have begun. Otherwise it says 0.
  explicit BackendComparison(bool knows_attempts_of_ended)
      : knows_attempts_of_ended_(knows_attempts_of_ended) {}

  Numbers timers;
  Numbers fences;

  // Compares one request that the reference has just carried out.
  void compare(const workflow::StoreRequest& reference, const workflow::StoreRequest& real,
               Difference& difference) {
    difference.expect("the error", reference.failure.error, real.failure.error);
    difference.expect("in doubt", false, real.failure.in_doubt);
    if (!difference.text().empty() || reference.failure.error != 0) return;
    std::visit(
        [this, &real, &difference](const auto& what) {
          compare_what(what, std::get<std::decay_t<decltype(what)>>(real.what), difference);
        },
        reference.what);
  }

 private:
  void compare_answers(const std::vector<WFStoreAnswer>& reference,
                       const std::vector<WFStoreAnswer>& real, Difference& d) {
    d.expect("the number of answers", reference.size(), real.size());
    for (size_t i = 0; i < reference.size() && d.text().empty(); ++i) {
      const WFStoreAnswer& a = reference[i];
      const WFStoreAnswer& b = real[i];
      d.expect("the verdict", static_cast<int>(a.verdict), static_cast<int>(b.verdict));
      if (!d.text().empty()) return;
      d.expect("the outcome", static_cast<int>(a.outcome), static_cast<int>(b.outcome));
      d.expect("the owner", a.owner, b.owner);
      d.expect("the rest of the lease", a.lease_left.count(), b.lease_left.count());
      if (a.verdict == WFStoreVerdict::kUnknown) {
        d.expect("since when it remembers", a.when.time_since_epoch().count(),
                 b.when.time_since_epoch().count());
      } else if (a.verdict == WFStoreVerdict::kDone) {
        d.expect("when it ended", a.when.time_since_epoch().count(),
                 b.when.time_since_epoch().count());
        d.expect("the attempts of the ended one", knows_attempts_of_ended_ ? a.attempts : 0,
                 b.attempts);
      } else {
        d.expect("the attempts", a.attempts, b.attempts);
        d.expect_true("it is the same timer", timers.pair(a.timer, b.timer));
        d.expect_true("it is the same fence", fences.pair(a.fence, b.fence));
      }
    }
  }

  void compare_what(const workflow::ScheduleRequest& a, const workflow::ScheduleRequest& b,
                    Difference& d) {
    compare_answers(a.answers, b.answers, d);
    d.expect_true("it is the same new timer", timers.pair(a.timer, b.timer));
  }

  void compare_what(const workflow::CancelRequest& a, const workflow::CancelRequest& b,
                    Difference& d) {
    compare_answers(a.answers, b.answers, d);
  }

  void compare_what(const workflow::RescheduleRequest& a, const workflow::RescheduleRequest& b,
                    Difference& d) {
    compare_answers(a.answers, b.answers, d);
  }

  void compare_what(const workflow::ClaimRequest& a, const workflow::ClaimRequest& b,
                    Difference& d) {
    d.expect("the number of claimed timers", a.claimed.size(), b.claimed.size());
    d.expect("the next time", a.next_us, b.next_us);
    d.expect("that there are more", a.more, b.more);
    if (!d.text().empty()) return;
    for (size_t i = 0; i < a.claimed.size() && d.text().empty(); ++i) {
      const workflow::ClaimRequest::Claimed& x = a.claimed[i];
      const workflow::ClaimRequest::Claimed& y = b.claimed[i];
      compare_spec(x.spec, y.spec, d);
      d.expect("the due time", x.due_us, y.due_us);
      d.expect("the end of the lease", x.lease_end_us, y.lease_end_us);
      d.expect("the attempts", x.attempts, y.attempts);
      d.expect_true("it is the same claimed timer", timers.pair(x.run.timer, y.run.timer));
      d.expect_true("the fence is new", !fences.knows_real(y.run.fence));
      d.expect_true("the fences grow", fences.pair(x.run.fence, y.run.fence));
    }
  }

  static void compare_spec(const workflow::StoredSpec& a, const workflow::StoredSpec& b,
                           Difference& d) {
    d.expect("the name", a.name, b.name);
    d.expect("the kind", a.kind, b.kind);
    d.expect("the payload", a.payload, b.payload);
    d.expect("the recurrence", a.repeat, b.repeat);
    d.expect("the late policy", a.skip_after_us, b.skip_after_us);
  }

  void compare_what(const workflow::FinishRequest& a, const workflow::FinishRequest& b,
                    Difference& d) {
    d.expect("that it is accepted", a.accepted, b.accepted);
  }

  void compare_what(const workflow::ExtendRequest& a, const workflow::ExtendRequest& b,
                    Difference& d) {
    d.expect("the number of extended leases", a.extended.size(), b.extended.size());
    for (size_t i = 0; i < a.extended.size() && d.text().empty(); ++i) {
      d.expect("that the lease is live", a.extended[i].live, b.extended[i].live);
      if (!a.extended[i].live) continue;
      d.expect("that it is cancelled", a.extended[i].cancelled, b.extended[i].cancelled);
      d.expect("the new end of the lease", a.extended[i].lease_end_us, b.extended[i].lease_end_us);
    }
  }

  void compare_what(const workflow::AskRequest& a, const workflow::AskRequest& b, Difference& d) {
    d.expect("that it is found", a.found, b.found);
    if (!a.found || !d.text().empty()) return;
    d.expect("the state", a.result.state, b.result.state);
    d.expect("the error of the asked one", a.result.error, b.result.error);
    d.expect("the count of the asked one", a.result.count, b.result.count);
    compare_answers(a.result.answers, b.result.answers, d);
    d.expect_true("it is the same asked timer", timers.pair(a.result.timer, b.result.timer));
  }

  void compare_what(const workflow::CountRequest& a, const workflow::CountRequest& b,
                    Difference& d) {
    d.expect("the count", a.count, b.count);
  }

  void compare_what(const workflow::ListRequest& a, const workflow::ListRequest& b, Difference& d) {
    d.expect("the number of listed timers", a.timers.size(), b.timers.size());
    d.expect("that the list goes on", a.more, b.more);
    for (size_t i = 0; i < a.timers.size() && d.text().empty(); ++i) {
      const WFStoreInfo& x = a.timers[i];
      const WFStoreInfo& y = b.timers[i];
      d.expect("the listed name", x.name, y.name);
      d.expect_true("it is the same listed timer", timers.pair(x.timer, y.timer));
      d.expect("the listed kind", x.kind, y.kind);
      d.expect("the listed payload", x.payload, y.payload);
      d.expect("the listed due time", x.due.time_since_epoch().count(),
               y.due.time_since_epoch().count());
      d.expect("the stage", static_cast<int>(x.stage), static_cast<int>(y.stage));
      d.expect("the listed attempts", x.attempts, y.attempts);
      d.expect("the listed owner", x.owner, y.owner);
      d.expect("the reason", x.reason, y.reason);
    }
  }

  void compare_what(const workflow::FailedRequest& a, const workflow::FailedRequest& b,
                    Difference& d) {
    d.expect("the number of failed timers", a.count, b.count);
  }

  void compare_what(const workflow::LookRequest& a, const workflow::LookRequest& b, Difference& d) {
    d.expect("the number of stored timers", a.stored, b.stored);
    d.expect("the number of due timers", a.due, b.due);
    d.expect("the number of overdue timers", a.overdue, b.overdue);
    d.expect("the number of unhandled timers", a.unhandled, b.unhandled);
    d.expect("the number of leased timers", a.leased, b.leased);
    d.expect("the number of failed timers", a.failed_timers, b.failed_timers);
  }

  const bool knows_attempts_of_ended_;
};

}  // namespace store_test

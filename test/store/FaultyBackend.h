#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "store/BackendAround.h"
#include "store/StoreBackend.h"

namespace store_test {

// A backend around another one that works. It fails when the test says so. Owns the other one.
//
// Used by one thread at a time, like every backend, but for now_us(). Any thread may tell it to
// fail.
class FaultyBackend final : public BackendAround {
 public:
  enum class Fault {
    kNone,
    kRefuse,  // nothing is carried out, and the failures say so
    kBefore,  // nothing is carried out, and the failures are in doubt
    kAfter    // everything is carried out, and the answers are lost: in doubt
  };

  using BackendAround::BackendAround;

  // Makes the next call of execute() fail in that way, unless it only looks at what there is: a
  // store does so by itself, at any time.
  void fail_next(Fault fault) { fault_ = fault; }
  // Makes all calls of execute() fail in that way, until the next call of this.
  void fail_always(Fault fault) { always_ = fault; }
  // Makes all claims fail with EILSEQ, and what is asked for with them, until the next call of
  // this.
  void fail_claims(bool fail) { fails_claims_ = fail; }
  // How often reopen() was called.
  int reopens() const { return reopens_; }
  // Makes the next `n` calls of reopen() fail with EIO.
  void fail_reopen(int n) { failing_reopens_ = n; }

  // Makes each reopen() that fails lose all leases.
  void lose_leases() { loses_leases_ = true; }

  // StoreBackend
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    const auto is_claim = [](const workflow::StoreRequest* request) {
      return std::holds_alternative<workflow::ClaimRequest>(request->what);
    };
    if (fails_claims_ && std::any_of(requests.begin(), requests.end(), is_claim)) {
      for (workflow::StoreRequest* request : requests) {
        request->failure = {EILSEQ, "the backend was told to be damaged", false};
      }
      return false;
    }
    const bool only_looks = std::all_of(requests.begin(), requests.end(), [](const auto* request) {
      return std::holds_alternative<workflow::LookRequest>(request->what);
    });
    const Fault next = only_looks ? Fault::kNone : fault_.exchange(Fault::kNone);
    const Fault fault = next == Fault::kNone ? always_.load() : next;
    if (fault == Fault::kNone) return backend_->execute(requests);
    if (fault == Fault::kAfter) {
      std::vector<workflow::StoreRequest> copies;
      for (const workflow::StoreRequest* request : requests) {
        copies.push_back(*request);
      }
      std::vector<workflow::StoreRequest*> carried_out;
      for (workflow::StoreRequest& copy : copies) {
        carried_out.push_back(&copy);
      }
      backend_->execute(carried_out);
    }
    for (workflow::StoreRequest* request : requests) {
      request->failure = {EIO, "the backend was told to fail", fault != Fault::kRefuse};
    }
    return false;
  }

  int reopen(std::string* message) override {
    reopens_++;
    if (failing_reopens_ > 0) {
      --failing_reopens_;
      *message = "the backend was told to fail";
      return EIO;
    }
    return BackendAround::reopen(message);
  }
  bool leases_are_lost() const override {
    return loses_leases_ || BackendAround::leases_are_lost();
  }

 private:
  std::atomic<Fault> fault_{Fault::kNone};
  std::atomic<Fault> always_{Fault::kNone};
  std::atomic<bool> fails_claims_{false};
  std::atomic<int> failing_reopens_{0};
  std::atomic<int> reopens_{0};
  std::atomic<bool> loses_leases_{false};
};

}  // namespace store_test

#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "store/BackendAround.h"

namespace store_test {

// A backend around another one. Counts the claims, and notes which one was the first to find
// something. The test counts the news.
class CountingBackend final : public BackendAround {
 public:
  struct Counts {
    std::atomic<int> news{0};
    std::atomic<int> claims{0};
    std::atomic<int> found_at{0};
  };
  CountingBackend(std::unique_ptr<workflow::StoreBackend> backend, Counts& counts)
      : BackendAround(std::move(backend)), counts_(counts) {}

  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    const auto claim_of = [](workflow::StoreRequest* request) {
      return std::get_if<workflow::ClaimRequest>(&request->what);
    };
    for (workflow::StoreRequest* request : requests) {
      counts_.claims += claim_of(request) != nullptr ? 1 : 0;
    }
    const bool works = backend_->execute(requests);
    for (workflow::StoreRequest* request : requests) {
      const workflow::ClaimRequest* claim = claim_of(request);
      if (claim != nullptr && !claim->claimed.empty() && counts_.found_at == 0) {
        counts_.found_at = counts_.claims.load();
      }
    }
    return works;
  }

 private:
  Counts& counts_;
};

}  // namespace store_test

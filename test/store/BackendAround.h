#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "store/StoreBackend.h"

namespace store_test {

// A backend around another one, which does what it does. Test doubles override the rest.
class BackendAround : public workflow::StoreBackend {
 public:
  explicit BackendAround(std::unique_ptr<workflow::StoreBackend> backend)
      : backend_(std::move(backend)) {}

  int reopen(std::string* message) override { return backend_->reopen(message); }
  bool leases_are_lost() const override { return backend_->leases_are_lost(); }
  WFStoreReceipt receipt() const override { return backend_->receipt(); }
  int64_t now_us() override { return backend_->now_us(); }
  void close() override { backend_->close(); }

 protected:
  const std::unique_ptr<workflow::StoreBackend> backend_;
};

}  // namespace store_test

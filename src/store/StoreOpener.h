#pragma once

#include <functional>
#include <memory>

#include "store/StoreBackend.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// Opens stores: for WFTimerStore::open(), and for tests that bring a backend of their own.
class StoreOpener {
 public:
  // Returns null with *failure set.
  using MakeBackend =
      std::function<std::unique_ptr<StoreBackend>(const StoreBackendOptions&, StoreFailure*)>;

  // Returns null with *failure set if an option is wrong, if there is no backend, or if the library
  // stops.
  static WFTimerStore* open(const WFStoreOptions& options, const MakeBackend& make_backend,
                            StoreFailure* failure);

 private:
  static StoreFailure check(const WFStoreOptions& options);
};

}  // namespace workflow

#pragma once

#include "factory/NameRegistry.h"
#include "kernel/Runtime.h"

namespace workflow {

// Returns the registry of one kind of named things in the calling thread's runtime.
template <class Kind>
NameRegistry& names_of() {
  class Names final : public RuntimePart, public NameRegistry {};
  return Runtime::current().part<Names>();
}

}  // namespace workflow

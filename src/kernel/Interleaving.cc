#include "kernel/Interleaving.h"

namespace workflow {

Interleaving::Interleaving(uint64_t seed) : state_(mix(seed)) {
  const uint64_t style = random() % 4;
  by_priority_ = style == 3;
  // 1/2, 1/8, 1/32; drops of priority at every 16th, 64th or 256th point.
  preempt_bits_ = static_cast<unsigned>(by_priority_ ? 4 + 2 * below(3) : 1 + 2 * style);
}

}  // namespace workflow

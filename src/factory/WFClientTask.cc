#include "workflow/WFClientTask.h"

#include "factory/InterruptScope.h"

namespace workflow {

void interrupt_exchange(Interruption& interruption, ClientExchange& exchange) {
  interruption.take_ended(exchange.end_early(interruption.error()));
}

}  // namespace workflow

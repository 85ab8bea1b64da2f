#pragma once

#include <optional>
#include <string_view>

#include "util/CronRules.h"
#include "workflow/WFCron.h"

namespace workflow {

// Reads an expression with the grammar of docs/timers.md. Returns nothing if the expression is
// wrong: then all members of *error are set except its text. The time taken is proportional to the
// length. Throws std::bad_alloc.
std::optional<CronRules> parse_cron(std::string_view expression, WFCronError* error);

}  // namespace workflow

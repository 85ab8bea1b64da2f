#pragma once

#include <optional>
#include <string_view>

#include "util/CronRules.h"
#include "workflow/WFCron.h"

namespace workflow {

// Reads an expression, its grammar being that of docs/timers.md. Empty when it is wrong: then all
// of *error is set, but its text. Takes time in proportion to the length. Throws std::bad_alloc.
std::optional<CronRules> parse_cron(std::string_view expression, WFCronError* error);

}  // namespace workflow

#pragma once

namespace workflow {

// Describes the state and the error of a task that has ended (WFTaskState.h, WFTaskError.h). The
// text is static. Any thread.
const char* error_text(int state, int error);

}  // namespace workflow

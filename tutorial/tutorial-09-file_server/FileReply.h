#pragma once

#include "Folder.h"
#include "workflow/WFTaskFactory.h"

// Answers a GET or HEAD request with a file of the folder, which outlives the request.
void reply_with_file(WFHttpTask* task, const Folder& folder);

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "workflow/HttpUtil.h"
#include "workflow/WFTaskFactory.h"

// Members in the order in which they are written.
using json = nlohmann::ordered_json;

// How the demo answers. They set the reply, which is sent when the request's series has ended.
void reply(WFHttpTask* task, int status, const char* type, const std::string& body);
void reply_json(WFHttpTask* task, int status, const json& body);
void reply_error(WFHttpTask* task, int status, const std::string& message);

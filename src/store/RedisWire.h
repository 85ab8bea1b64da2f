#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "workflow/RedisMessage.h"

namespace workflow {

// These append to `*wire` what is sent: a command with its parameters, the same from parts that
// need not be strings, and a value.
void append_command(std::string* wire, const std::string& command,
                    const std::vector<std::string>& params);
void append_command(std::string* wire, std::initializer_list<std::string_view> parts);
void append_value(std::string* wire, const protocol::RedisValue& value);

}  // namespace workflow

#pragma once

#include <cstddef>
#include <string_view>

#include "workflow/ProtocolMessage.h"

namespace message_kit {

// Gives the bytes to the message at once. `*taken` gets how many it has taken.
inline int append(protocol::ProtocolMessage& message, std::string_view bytes,
                  size_t* taken = nullptr) {
  size_t size = bytes.size();
  const int result = message.append(bytes.data(), &size);
  if (taken != nullptr) *taken = size;
  return result;
}

}  // namespace message_kit

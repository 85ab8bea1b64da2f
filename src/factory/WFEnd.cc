#include "workflow/WFEnd.h"

#include <cstring>

const char* WFError::what() const noexcept {
  try {
    if (text_.empty()) {
      text_ = "state " + std::to_string(end.state) + ", error " + std::to_string(end.error);
      if (end.state == WFT_STATE_SYS_ERROR) {
        char buffer[128];
        text_ += std::string(": ") + strerror_r(end.error, buffer, sizeof(buffer));
      } else if (end.state == WFT_STATE_ABORTED) {
        text_ += ": the library stops";
      }
    }
    return text_.c_str();
  } catch (...) {
    return "a task has not ended with success";
  }
}

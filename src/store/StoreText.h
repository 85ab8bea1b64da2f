#pragma once

#include <string>
#include <string_view>

#include "store/StoreRequest.h"

namespace workflow {

// Texts that users see or pass on.
class StoreText {
 public:
  // The place behind that timer in a list: its number, a colon and its name.
  static std::string cursor_at(const WFStoreInfo& info);
  // Stores the place in `list`. Returns false if the text is no cursor.
  static bool read_cursor(const std::string& cursor, ListRequest& list);

  // At most 40 bytes of `text` in quotation marks, on one line: what is not printable ASCII becomes
  // \xHH.
  static std::string quoted(std::string_view text);

  // As the value of a label of Prometheus.
  static std::string label_value(std::string_view text);
};

}  // namespace workflow

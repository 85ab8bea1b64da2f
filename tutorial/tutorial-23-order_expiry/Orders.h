#pragma once

#include <string>

// What a shop knows of its orders: a folder with an empty file for each order that has expired.
class Orders {
 public:
  explicit Orders(const std::string& folder) : folder_(folder) {}

  // Makes the order expire. Returns false if it had expired before: expiring it twice has the same
  // effect as once, so it does no harm that a timer may run twice. It ends the process if the
  // folder cannot be written to.
  bool expire(const std::string& order) const;

 private:
  const std::string folder_;
};

#pragma once

#include <memory>
#include <string>

#include "store/StoreKit.h"
#include "support/RedisServer.h"
#include "support/TempDir.h"

namespace store_test {

// A new place for timers, which is gone with this object: "Memory", "Sqlite" (a shared file),
// "Owned" (a file with one owner) or "Redis" (a server of its own). Any number of stores may be
// opened there, of an owned file one at a time.
class PlaceOfTimers {
 public:
  explicit PlaceOfTimers(const std::string& kind) {
    if (kind == "Memory") {
      url_ = fresh_url();
    } else if (kind == "Redis") {
      server_ = std::make_unique<redis_test::RedisServer>();
      url_ = server_->url() + "&namespace=test&shards=3";
    } else {
      url_ = "sqlite:" + path() + (kind == "Owned" ? "?layout=owned" : "");
    }
  }

  const std::string& url() const { return url_; }
  // That of the file, if there is one.
  std::string path() const { return directory_.path("timers"); }

 private:
  test_support::FastDir directory_;
  std::unique_ptr<redis_test::RedisServer> server_;
  std::string url_;
};

}  // namespace store_test

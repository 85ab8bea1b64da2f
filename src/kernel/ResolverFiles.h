#pragma once

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>

#include "kernel/HostsFile.h"
#include "kernel/ResolvConf.h"

namespace workflow {

// A small text file that somebody may change at any time. One thread.
class WatchedFile {
 public:
  static constexpr size_t kMaxBytes = 16 * 1024 * 1024;

  // An empty path is a file that never is there.
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}

  // The first kMaxBytes of the file if it is not the one that was seen the last time, by its inode,
  // size and times; empty if it has gone. Null while it has not changed, or cannot be read for want
  // of descriptors: then the next call tries again.
  std::optional<std::string> changed_text();

 private:
  const std::string path_;
  bool seen_ = false;
  struct stat stamp_ = {};  // all zero: it was not there
};

// The hosts file and resolv.conf, as they are now. One thread; reads files, so it may wait for the
// disk.
class ResolverFiles {
 public:
  struct Options {
    std::string hosts_path = "/etc/hosts";
    std::string resolv_conf_path = "/etc/resolv.conf";
    // These go before what resolv.conf says; empty or 0: what that says.
    std::vector<std::string> servers = {};  // as numeric_host_and_port() takes them
    int timeout_ms = 0;
    int attempts = 0;
  };

  explicit ResolverFiles(const Options& options);

  // Looks whether the files have changed; true when they have. Once before the rest.
  bool refresh();

  const HostsFile& hosts() const { return hosts_; }
  // Another object after each change. Has at least one server: where none is named that is
  // 127.0.0.1, as resolv.conf(5) says.
  const std::shared_ptr<const ResolvConf>& conf() const { return conf_; }

 private:
  std::shared_ptr<const ResolvConf> complete(ResolvConf conf) const;

  const Options options_;
  WatchedFile hosts_file_;
  WatchedFile conf_file_;
  HostsFile hosts_;
  std::shared_ptr<const ResolvConf> conf_;
};

}  // namespace workflow

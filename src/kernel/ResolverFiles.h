#pragma once

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>

#include "kernel/HostsFile.h"
#include "kernel/ResolvConf.h"

namespace workflow {

// A small text file that may change at any time. To be used by one thread.
class WatchedFile {
 public:
  static constexpr size_t kMaxBytes = 16 * 1024 * 1024;

  // An empty path stands for a file that never exists.
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}

  // Returns the text of the file, up to about kMaxBytes, if its inode, size or times differ from
  // the last call. The text is empty if the file has disappeared or cannot be opened. Returns
  // nullopt if it has not changed, or if descriptors have run out or read(2) has failed; in the
  // latter two cases the next call tries again.
  std::optional<std::string> changed_text();

 private:
  const std::string path_;
  bool seen_ = false;
  struct stat stamp_ = {};  // all zero: the file did not exist
};

// The current contents of the hosts file and of resolv.conf. To be used by one thread. Reads files,
// so it may wait for the disk.
class ResolverFiles {
 public:
  struct Options {
    std::string hosts_path = "/etc/hosts";
    std::string resolv_conf_path = "/etc/resolv.conf";
    // These override resolv.conf. Empty or 0: as resolv.conf says.
    std::vector<std::string> servers = {};  // in the form that numeric_host_and_port() reads
    int timeout_ms = 0;
    int attempts = 0;
  };

  explicit ResolverFiles(const Options& options);

  // Reads the files again if they have changed, and returns whether they have. Must be called once
  // before the other functions.
  bool refresh();

  const HostsFile& hosts() const { return hosts_; }
  // A new object after each change. It has at least one server: 127.0.0.1 if none is named, as
  // resolv.conf(5) says.
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

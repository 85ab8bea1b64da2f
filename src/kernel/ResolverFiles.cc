#include "kernel/ResolverFiles.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "util/UniqueFd.h"

namespace workflow {

namespace {

bool same_time(const struct timespec& a, const struct timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         same_time(a.st_mtim, b.st_mtim) && same_time(a.st_ctim, b.st_ctim);
}

std::optional<std::string> read_all(int fd) {
  std::string text;
  char buffer[64 * 1024];
  while (text.size() < WatchedFile::kMaxBytes) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

std::optional<std::string> WatchedFile::changed_text() {
  struct stat now = {};
  if (path_.empty() || ::stat(path_.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) {
    now = {};
  }
  if (seen_ && same_file(now, stamp_)) return std::nullopt;
  std::optional<std::string> text("");
  if (now.st_ino != 0) {
    const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const bool short_of_descriptors = !fd.valid() && (errno == EMFILE || errno == ENFILE);
    if (short_of_descriptors) return std::nullopt;
    if (fd.valid()) {
      // A change between stat() and here is read now, and once more the next time.
      text = read_all(fd.get());
    }
  }
  if (text) {
    stamp_ = now;
    seen_ = true;
  }
  return text;
}

ResolverFiles::ResolverFiles(const Options& options)
    : options_(options), hosts_file_(options.hosts_path), conf_file_(options.resolv_conf_path) {}

bool ResolverFiles::refresh() {
  bool changed = false;
  if (const auto text = hosts_file_.changed_text()) {
    hosts_ = HostsFile(*text);
    changed = true;
  }
  const auto text = conf_file_.changed_text();
  if (text || !conf_) {
    conf_ = complete(ResolvConf(text ? *text : std::string_view()));
    changed = true;
  }
  return changed;
}

std::shared_ptr<const ResolvConf> ResolverFiles::complete(ResolvConf conf) const {
  std::vector<HostAddress> servers;
  for (const std::string& server : options_.servers) {
    if (const auto address = numeric_host_and_port(server, ResolvConf::kPort)) {
      servers.push_back(*address);
    }
  }
  if (!servers.empty()) {
    conf.servers = std::move(servers);
  }
  if (conf.servers.empty()) {
    conf.servers.push_back(HostAddress::of(in_addr{htonl(INADDR_LOOPBACK)}, ResolvConf::kPort));
  }
  if (options_.timeout_ms > 0) {
    conf.timeout_ns = options_.timeout_ms * kNsPerMs;
  }
  if (options_.attempts > 0) {
    conf.attempts = options_.attempts;
  }
  return std::make_shared<const ResolvConf>(std::move(conf));
}

}  // namespace workflow

#include "store/SqlitePlace.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include "store/StoreText.h"

namespace workflow {

namespace {

// realpath(3); empty with errno.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr),
                                                          &std::free);
  return found ? found.get() : std::string();
}

int refuse(int error, const std::string& why, std::string* message) {
  *message = why;
  return error;
}

// The longest names are those with "-new-journal". SQLite takes paths of 512 bytes.
int check_length(const std::string& path, std::string* message) {
  constexpr size_t kMaxPath = 500;
  constexpr size_t kMaxName = 243;
  const auto too_long = [&](const char* what, size_t size, size_t most) {
    return refuse(ENAMETOOLONG,
                  std::string(what) + " has " + std::to_string(size) + " bytes; at most " +
                      std::to_string(most) + " are allowed: " + path,
                  message);
  };
  const size_t name = path.size() - path.rfind('/') - 1;
  if (name > kMaxName) return too_long("the name of the file", name, kMaxName);
  return path.size() > kMaxPath ? too_long("the path", path.size(), kMaxPath) : 0;
}

int read_parameters(std::string_view parameters, SqliteLayout* layout, std::string* message) {
  while (!parameters.empty()) {
    const std::string_view parameter = parameters.substr(1, parameters.find('&', 1) - 1);
    parameters.remove_prefix(1 + parameter.size());
    const size_t equals = std::min(parameter.find('='), parameter.size());
    const std::string_view name = parameter.substr(0, equals);
    const std::string_view value = parameter.substr(std::min(equals + 1, parameter.size()));
    if (name != "layout") {
      return refuse(
          EINVAL,
          "unknown parameter in the URL: " + StoreText::quoted(name) + "; there is only layout",
          message);
    }
    if (value != "owned" && value != "shared") {
      return refuse(
          EINVAL,
          "layout in the URL is " + StoreText::quoted(value) + ": allowed are shared and owned",
          message);
    }
    *layout = value == "owned" ? SqliteLayout::kOwned : SqliteLayout::kShared;
  }
  return 0;
}

}  // namespace

int find_sqlite_file(const std::string& url_place, std::string* path, SqliteLayout* layout,
                     std::string* message) {
  const size_t mark = std::min(url_place.find('?'), url_place.size());
  const std::string place = url_place.substr(0, mark);
  *layout = SqliteLayout::kShared;
  const std::string_view parameters = std::string_view(url_place).substr(mark);
  if (const int error = read_parameters(parameters, layout, message)) return error;
  if (place.empty()) return refuse(EINVAL, "the URL names no file", message);
  if (place.starts_with("//")) {
    return refuse(EINVAL, "the URL names a host: write sqlite:/path, with one slash", message);
  }
  if (place.find('\0') != std::string::npos) {
    return refuse(EINVAL, "the path in the URL contains a zero byte", message);
  }
  if (place.find('#') != std::string::npos) {
    return refuse(EINVAL, "the path in the URL contains a #: " + place, message);
  }
  if (place.ends_with('/')) return refuse(EINVAL, "the path ends in a slash: " + place, message);
  struct stat status = {};
  if (::stat(place.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return refuse(EINVAL, "not a regular file: " + place, message);
    *path = real_path(place);
    if (path->empty()) return refuse(errno, place + ": " + std::strerror(errno), message);
    return check_length(*path, message);
  }
  if (errno != ENOENT) return refuse(errno, place + ": " + std::strerror(errno), message);
  // If it is a file by now, another process has just created it.
  if (::lstat(place.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    return refuse(ENOENT, place + ": a symbolic link that leads nowhere", message);
  }
  const size_t slash = place.rfind('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : place.substr(0, slash);
  const std::string real = real_path(directory);
  if (real.empty()) return refuse(errno, directory + ": " + std::strerror(errno), message);
  *path = (real == "/" ? "" : real) + "/" +
          (slash == std::string::npos ? place : place.substr(slash + 1));
  return check_length(*path, message);
}

bool is_network_file_system(long type) {
  // The numbers of linux/magic.h, and of file systems that are not part of Linux.
  constexpr std::array<uint32_t, 16> kTypes = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB2
      0x5346414f,  // AFS
      0x6b414653,  // AFS of the kernel
      0x73757245,  // Coda
      0x00c36400,  // Ceph
      0x01021997,  // 9P
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x01161970,  // GFS2
      0x7461636f,  // OCFS2
      0x564c,      // NCP
      0x19830326,  // BeeGFS
      0x786f4256,  // the shared folders of VirtualBox
  };
  return std::find(kTypes.begin(), kTypes.end(), static_cast<uint32_t>(type)) != kTypes.end();
}

bool is_fuse(long type) {
  return static_cast<uint32_t>(type) == 0x65735546;
}

std::string file_system_name(const std::string& mountinfo, dev_t device) {
  const std::string numbers =
      std::to_string(::major(device)) + ":" + std::to_string(::minor(device));
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id;
    std::string parent;
    std::string found;
    fields >> id >> parent >> found;
    const size_t separator = line.find(" - ");
    if (found != numbers || separator == std::string::npos) continue;
    const size_t begin = separator + 3;
    return line.substr(begin, line.find(' ', begin) - begin);
  }
  return {};
}

bool is_network_file_system(const std::string& name) {
  constexpr std::array<std::string_view, 6> kNames = {"fuse.sshfs",  "fuse.glusterfs", "fuse.s3fs",
                                                      "fuse.rclone", "beegfs",         "vboxsf"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace workflow

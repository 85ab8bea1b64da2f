#include "Folder.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "workflow/HttpUtil.h"
#include "workflow/URIParser.h"

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Once, and here "+" is a plus. An encoded slash is refused: it would become a separator that
// whoever looked at the target before did not see. A null byte would end the name for the system.
bool decode(std::string_view encoded, std::string& text) {
  for (size_t i = 0; i < encoded.size(); i++) {
    char c = encoded[i];
    if (c == '%') {
      if (encoded.size() - i < 3) return false;
      const int high = hex_value(encoded[i + 1]);
      const int low = hex_value(encoded[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      if (c == '/' || c == '\0') return false;
      i += 2;
    }
    text += c;
  }
  return true;
}

// The path of a target without its query. A target is a path, or a whole URL (RFC 9112, 3.2).
bool path_of(const std::string& target, std::string& path) {
  if (target[0] == '/') {
    path = target.substr(0, target.find_first_of("?#"));
    return true;
  }
  ParsedURI uri;
  if (URIParser::parse(target, uri) != 0 || !uri.host) return false;
  path = uri.path && *uri.path ? uri.path : "/";
  return true;
}

int status_of(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return HttpStatusForbidden;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case EINTR:
      return HttpStatusServiceUnavailable;
    case EIO:
    case ENOSYS:  // a kernel before 5.6: nothing is served rather than too much
      return HttpStatusInternalServerError;
    default:
      // ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP, ...; EXDEV: it leads out of the folder.
      return HttpStatusNotFound;
  }
}

}  // namespace

int name_of(const std::string& target, std::string& name) {
  std::string path;
  if (!path_of(target, path)) return HttpStatusBadRequest;
  name.clear();
  // Segment by segment: what a segment decodes to is judged, but never decoded again.
  for (size_t slash = 0; slash < path.size();) {
    const size_t next = std::min(path.find('/', slash + 1), path.size());
    std::string segment;
    if (!decode(std::string_view(path).substr(slash + 1, next - slash - 1), segment))
      return HttpStatusBadRequest;
    // Only the last may be empty: a directory's.
    const bool last = next == path.size();
    if (segment.empty() ? !last : segment[0] == '.') return HttpStatusNotFound;
    name += segment;
    if (!last) name += '/';
    slash = next;
  }
  return HttpStatusOK;
}

void OpenFile::close() {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

Folder::Folder(const char* path) : fd_(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

Folder::~Folder() {
  if (is_open()) ::close(fd_);
}

int Folder::find(const std::string& name, OpenFile& file) const {
  int status = open_beneath(name, file);
  if (status == HttpStatusOK && S_ISDIR(file.facts.st_mode)) {
    if (!name.empty() && name.back() != '/') return HttpStatusMovedPermanently;
    status = open_beneath(name + "index.html", file);
  }
  // Not a directory, a device, a FIFO.
  return status == HttpStatusOK && !S_ISREG(file.facts.st_mode) ? HttpStatusNotFound : status;
}

// Which file a name means is decided here, by the kernel, at the moment of opening: no absolute
// name, no ".." and no symbolic link leads out of the folder. To compare names before, as by
// realpath(3), would be too early: links can change until the file is opened. O_NOFOLLOW would look
// at the last segment only.
int Folder::open_beneath(const std::string& name, OpenFile& file) const {
  struct open_how how = {};
  // O_NONBLOCK: opening a FIFO would wait for a writer.
  how.flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  file.close();
  file.name = name;
  const long fd = ::syscall(SYS_openat2, fd_, name.empty() ? "." : name.c_str(), &how, sizeof how);
  if (fd < 0) return status_of(errno);
  file.fd = static_cast<int>(fd);
  if (::fstat(file.fd, &file.facts) != 0 || ::fcntl(file.fd, F_SETFL, 0) != 0)
    return HttpStatusInternalServerError;
  return HttpStatusOK;
}

#pragma once

#include <sys/stat.h>

#include <string>

// A file that is open for reading, and what was known of it then. Closes it.
struct OpenFile {
  OpenFile() = default;
  ~OpenFile() { close(); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void close();

  int fd = -1;
  struct stat facts = {};
  std::string name;  // below the folder
};

// The name below the folder, percent-decoded, that a request target asks for. Returns 200, or
//   400  a target or an encoding that is none; a slash or a null byte that is encoded
//   404  segments that are empty or begin with a dot: "//", ".", "..", hidden files
int name_of(const std::string& target, std::string& name);

// The folder that is served. Thread-safe.
class Folder {
 public:
  explicit Folder(const char* path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  bool is_open() const { return fd_ >= 0; }

  // Opens the file of that name, or the index.html of a directory. Returns 200; 301 when "/" is
  // missing at the end; 404 and others when it cannot be served. May wait for a disk.
  int find(const std::string& name, OpenFile& file) const;

 private:
  int open_beneath(const std::string& name, OpenFile& file) const;

  const int fd_;
};

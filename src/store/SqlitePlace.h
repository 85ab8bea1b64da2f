#pragma once

#include <sys/types.h>

#include <string>

#include "store/SqliteSchema.h"

namespace workflow {

// The file that the part of a URL after "sqlite:" names: an absolute path, without symbolic links;
// and its layout, which may follow as ?layout=shared or ?layout=owned.
// Returns 0, or an errno value and a message: EINVAL for what is no path, ENOENT if the directory
// is missing, or whatever the system says. The file itself may be missing.
int find_sqlite_file(const std::string& place, std::string* path, SqliteLayout* layout,
                     std::string* message);

// Whether a file system of that type, as statfs(2) tells it, is on another machine. Locks and
// shared memory do not work there as SQLite needs them.
bool is_network_file_system(long type);

// Whether a file system of that type is one of FUSE. Only its name tells what it is.
bool is_fuse(long type);

// The name of the file system of a device, such as "ext4" or "fuse.sshfs", by the text of
// /proc/self/mountinfo (proc(5)). Empty if the device is not there.
std::string file_system_name(const std::string& mountinfo, dev_t device);

// Whether a file system of that name is on another machine.
bool is_network_file_system(const std::string& name);

}  // namespace workflow

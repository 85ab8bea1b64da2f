#include "factory/FileTask.h"
#include "workflow/WFTaskFactory.h"

// The "Files" of WFTaskFactory.

namespace {

using workflow::FileTask;
using workflow::PathTask;
using Kind = workflow::FileRequest::Kind;

constexpr int kNoFd = -1;

// The operation only reads from it.
void* unconst(const void* buf) {
  return const_cast<void*>(buf);
}

}  // namespace

WFFileIOTask* WFTaskFactory::create_pread_task(int fd, void* buf, size_t count, off_t offset,
                                               fio_callback_t callback) {
  return new FileTask<FileIOArgs>(Kind::kRead, {fd, buf, count, offset}, std::move(callback));
}

WFFileIOTask* WFTaskFactory::create_pread_task(const std::string& path, void* buf, size_t count,
                                               off_t offset, fio_callback_t callback) {
  return new PathTask<FileIOArgs>(Kind::kRead, path, {kNoFd, buf, count, offset},
                                  std::move(callback));
}

WFFileIOTask* WFTaskFactory::create_pwrite_task(int fd, const void* buf, size_t count, off_t offset,
                                                fio_callback_t callback) {
  return new FileTask<FileIOArgs>(Kind::kWrite, {fd, unconst(buf), count, offset},
                                  std::move(callback));
}

WFFileIOTask* WFTaskFactory::create_pwrite_task(const std::string& path, const void* buf,
                                                size_t count, off_t offset,
                                                fio_callback_t callback) {
  return new PathTask<FileIOArgs>(Kind::kWrite, path, {kNoFd, unconst(buf), count, offset},
                                  std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_preadv_task(int fd, const struct iovec* iov, int iovcnt,
                                                 off_t offset, fvio_callback_t callback) {
  return new FileTask<FileVIOArgs>(Kind::kReadVector, {fd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_preadv_task(const std::string& path, const struct iovec* iov,
                                                 int iovcnt, off_t offset,
                                                 fvio_callback_t callback) {
  return new PathTask<FileVIOArgs>(Kind::kReadVector, path, {kNoFd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_pwritev_task(int fd, const struct iovec* iov, int iovcnt,
                                                  off_t offset, fvio_callback_t callback) {
  return new FileTask<FileVIOArgs>(Kind::kWriteVector, {fd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileVIOTask* WFTaskFactory::create_pwritev_task(const std::string& path, const struct iovec* iov,
                                                  int iovcnt, off_t offset,
                                                  fvio_callback_t callback) {
  return new PathTask<FileVIOArgs>(Kind::kWriteVector, path, {kNoFd, iov, iovcnt, offset},
                                   std::move(callback));
}

WFFileSyncTask* WFTaskFactory::create_fsync_task(int fd, fsync_callback_t callback) {
  return new FileTask<FileSyncArgs>(Kind::kSync, {fd}, std::move(callback));
}

WFFileSyncTask* WFTaskFactory::create_fdatasync_task(int fd, fsync_callback_t callback) {
  return new FileTask<FileSyncArgs>(Kind::kDataSync, {fd}, std::move(callback));
}

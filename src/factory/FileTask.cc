#include "factory/FileTask.h"

#include <cerrno>

#include "kernel/Runtime.h"

namespace workflow {

namespace {

void describe(const FileIOArgs& args, FileRequest& request) {
  request.fd = args.fd;
  request.buffer = args.buf;
  request.size = args.count;
  request.offset = args.offset;
}

void describe(const FileVIOArgs& args, FileRequest& request) {
  request.fd = args.fd;
  request.vector = args.iov;
  request.vector_count = args.iovcnt;
  request.offset = args.offset;
}

void describe(const FileSyncArgs& args, FileRequest& request) {
  request.fd = args.fd;
}

}  // namespace

template <class ARGS>
void FileTask<ARGS>::dispatch() {
  FileIo& files = Runtime::current().files();
  if (this->has_scope()) {
    files.choose();
  }
  if (const int ended = this->enter_scope()) {
    end_refused(ended);
  } else if (const int refused = files.submit(this)) {
    end_refused(refused);
  }
}

template <class ARGS>
void FileTask<ARGS>::on_cancel(int reason) {
  if (Runtime::current().files().withdraw(this)) {
    RunnableList none;
    end_with(WFT_STATE_SYS_ERROR, reason, -1, none);
  }
}

template <class ARGS>
FileRequest FileTask<ARGS>::request() const {
  FileRequest request;
  request.kind = kind_;
  describe(this->args_, request);
  return request;
}

template <class ARGS>
void FileTask<ARGS>::finished(long result, RunnableList& done) {
  if (result < 0) {
    end_with(WFT_STATE_SYS_ERROR, static_cast<int>(-result), -1, done);
  } else {
    end_with(WFT_STATE_SUCCESS, 0, result, done);
  }
}

template <class ARGS>
void FileTask<ARGS>::aborted(RunnableList& done) {
  const int reason = this->cancel_reason();
  end_with(reason != 0 ? WFT_STATE_SYS_ERROR : WFT_STATE_ABORTED, reason, -1, done);
}

template <class ARGS>
void FileTask<ARGS>::end_refused(int reason) {
  // Through the handler threads even from one of their threads: a task whose callback starts the
  // next such task must not nest.
  RunnableList done;
  if (reason == ECANCELED) {
    aborted(done);
  } else {
    finished(-reason, done);
  }
  Runtime::current().handlers().post(done);
}

template <class ARGS>
void FileTask<ARGS>::end_with(int end_state, int end_error, long retval, RunnableList& done) {
  this->state = end_state;
  this->error = end_error;
  this->retval_ = retval;
  if (this->leave_scope()) {
    done.push_back(static_cast<SubTask*>(this));
  }
}

template <class ARGS>
void PathTask<ARGS>::dispatch() {
  // The system would take the part before a null byte for the whole name.
  if (path_.find('\0') != std::string::npos) {
    this->end_refused(EINVAL);
  } else {
    FileTask<ARGS>::dispatch();
  }
}

template <class ARGS>
FileRequest PathTask<ARGS>::request() const {
  FileRequest request = FileTask<ARGS>::request();
  request.path = path_.c_str();
  return request;
}

template class FileTask<FileIOArgs>;
template class FileTask<FileVIOArgs>;
template class FileTask<FileSyncArgs>;
template class PathTask<FileIOArgs>;
template class PathTask<FileVIOArgs>;

}  // namespace workflow

#pragma once

#include <functional>
#include <string>
#include <utility>

#include "kernel/FileOperation.h"
#include "workflow/WFFileTask.h"

namespace workflow {

// A file task that is under way. It is two queue nodes in one object: the operation, which FileIo
// queues, and the task, which is posted to the handler threads when the operation has ended.
template <class ARGS>
class FileTask : public WFFileTask<ARGS>, public FileOperation {
 public:
  using Callback = std::function<void(WFFileTask<ARGS>*)>;

  FileTask(FileRequest::Kind kind, const ARGS& args, Callback&& callback)
      : WFFileTask<ARGS>(args, std::move(callback)), kind_(kind) {}

  void dispatch() override;
  FileRequest request() const override;
  void finished(long result, RunnableList& done) final;
  void aborted(RunnableList& done) final;
  int end_reason() const final { return this->cancel_reason(); }

 protected:
  ~FileTask() override = default;

  // Ends a task that was not given to FileIo, or that FileIo has refused. The outcome is SYS_ERROR
  // with `reason`. If the reason is ECANCELED, the outcome is that of aborted(). Posts the task to
  // the handler threads.
  void end_refused(int reason);

  void on_cancel(int reason) override;

 private:
  // Stores the outcome and leaves the scope. If the caller has to post the task, adds it to `done`.
  void end_with(int end_state, int end_error, long retval, RunnableList& done);

  const FileRequest::Kind kind_;
};

// A file task on a file that it opens and closes itself.
template <class ARGS>
class PathTask final : public FileTask<ARGS> {
 public:
  PathTask(FileRequest::Kind kind, const std::string& path, const ARGS& args,
           typename FileTask<ARGS>::Callback&& callback)
      : FileTask<ARGS>(kind, args, std::move(callback)), path_(path) {}

  void dispatch() override;
  FileRequest request() const override;

 protected:
  ~PathTask() override = default;

 private:
  const std::string path_;
};

}  // namespace workflow

#include "kernel/FileQueue.h"

#include "kernel/FileOperation.h"

namespace workflow {

void FileQueue::push_back(FileOperation* operation) {
  FileQueueNode* const node = operation;
  node->before_ = before_;
  node->behind_ = this;
  before_->behind_ = node;
  before_ = node;
}

FileOperation* FileQueue::pop_front() {
  if (empty()) return nullptr;
  auto* const operation = static_cast<FileOperation*>(behind_);
  remove(operation);
  return operation;
}

void FileQueue::remove(FileOperation* operation) {
  FileQueueNode* const node = operation;
  node->before_->behind_ = node->behind_;
  node->behind_->before_ = node->before_;
  node->before_ = node->behind_ = node;
}

}  // namespace workflow

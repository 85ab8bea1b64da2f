#pragma once

namespace workflow {

class FileOperation;

// An operation's place in a FileQueue. An operation is in at most one queue.
class FileQueueNode {
 protected:
  FileQueueNode() = default;
  ~FileQueueNode() = default;
  FileQueueNode(const FileQueueNode&) = delete;
  FileQueueNode& operator=(const FileQueueNode&) = delete;

 private:
  friend class FileQueue;
  FileQueueNode* before_ = this;
  FileQueueNode* behind_ = this;
};

// A FIFO of operations, linked through the operations themselves. Any of them can be removed. The
// queue owns nothing. Every call is O(1) and allocates nothing. Not thread-safe.
class FileQueue : private FileQueueNode {
 public:
  FileQueue() = default;

  bool empty() const { return behind_ == this; }
  void push_back(FileOperation* operation);
  // Removes and returns the oldest operation, or null.
  FileOperation* pop_front();
  // Removes an operation from the queue that it is in.
  static void remove(FileOperation* operation);
};

}  // namespace workflow

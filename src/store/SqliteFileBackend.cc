#include "store/SqliteFileBackend.h"

#include <cerrno>

#include "util/Time.h"

namespace workflow {

bool SqliteFileBackend::execute(Requests requests) {
  while (!requests.empty()) {
    const Requests group = requests.first(SqliteStore::group_size(requests));
    requests = requests.subspan(group.size());
    for (StoreRequest* request : group) {
      clear_answer(*request);
    }
    StoreFailure failure = broken_;
    if (failure.error == 0 && store_.works(&failure)) {
      carry_out_group(group);
    } else {
      fail(group, failure);
    }
  }
  return !has_failed();
}

void SqliteFileBackend::fail(Requests requests, const StoreFailure& failure) {
  for (StoreRequest* request : requests) {
    clear_answer(*request);
    request->failure = failure;
    request->failure.in_doubt = failure.in_doubt && !only_reads(*request);
  }
  if (!SqliteFile::goes_on_after(failure.error)) {
    broken_ = failure;
    broken_.in_doubt = false;
  }
}

void SqliteFileBackend::refuse_for_room(StoreRequest& request) const {
  request.failure.error = ENOSPC;
  request.failure.message = store_.path() + ": the disk is full, and the timer was not stored";
}

void SqliteFileBackend::note_commit(int64_t began_ns) {
  if (options_.times && store_.connection().code() == SQLITE_OK) {
    options_.times->commit.add(monotonic_ns() - began_ns);
  }
}

int SqliteFileBackend::reopen(std::string* message) {
  close_file(true);
  const int error = open_file(false, message);
  broken_ = StoreFailure();
  if (error != 0) {
    broken_.error = error;
    broken_.message = *message;
  }
  return error;
}

WFStoreReceipt SqliteFileBackend::receipt() const {
  WFStoreReceipt receipt;
  receipt.level = WFStoreReceipt::kFile;
  return receipt;
}

int64_t SqliteFileBackend::now_us() {
  return options_.clock->now_ns_on(ClockId::kWall) / kNsPerUs;
}

void SqliteFileBackend::close() {
  close_file(false);
  broken_.error = ESHUTDOWN;
  broken_.message.clear();  // a text might need memory
}

}  // namespace workflow

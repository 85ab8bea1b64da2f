#include "kernel/DnsLookup.h"

#include <netdb.h>

#include <algorithm>
#include <new>
#include <utility>

namespace workflow {

DnsLookup::DnsLookup(Poller& poller, Owner& owner, std::string key, std::string_view host,
                     int family)
    : poller_(poller), owner_(owner), key_(std::move(key)), host_(host), family_(family) {}

template <class Step>
void DnsLookup::with_memory(Step step) {
  try {
    step();
    return;
  } catch (const std::bad_alloc&) {
    // The end is told below, when the handler has been left.
  }
  end({.error = EAI_MEMORY});
}

void DnsLookup::end(AresQuery::Result result) {
  poller_.unschedule(this);
  owner_.end(*this, std::move(result));
}

void DnsLookup::start(std::shared_ptr<const ResolvConf> conf, size_t first_server) {
  conf_ = std::move(conf);
  first_server_ = first_server;
  with_memory([this] {
    candidates_ = conf_->candidates(host_);
    ask();
  });
}

void DnsLookup::ask() {
  const size_t servers = conf_->servers.size();
  for (;;) {
    if (asked_ == servers * static_cast<size_t>(conf_->attempts)) {
      end({.error = failure_});
      return;
    }
    const HostAddress& server = conf_->servers[(first_server_ + asked_) % servers];
    asked_++;
    AresQuery::Owner& query_owner = *this;
    query_ = std::make_unique<AresQuery>(poller_, server, query_owner);
    const int64_t now_ns = poller_.clock().now_ns();
    if (!poller_.schedule(this, saturating_add(now_ns, conf_->timeout_ns))) {
      end({.error = EAI_CANCELED});
      return;
    }
    if (!query_->start(candidates_[candidate_], family_)) {
      return;
    }
    if (!ask_on(query_->result())) {
      return;
    }
  }
}

bool DnsLookup::ask_on(AresQuery::Result result) {
  switch (result.error) {
    case EAI_NODATA:
      exists_ = true;
      [[fallthrough]];
    case EAI_NONAME:
      candidate_++;
      asked_ = 0;
      if (candidate_ < candidates_.size()) {
        return true;
      }
      result.error = exists_ ? EAI_NODATA : EAI_NONAME;
      break;
    case EAI_AGAIN:
    case EAI_FAIL:
      failure_ = result.error;
      return true;
    default:  // found, or nobody can be asked
      break;
  }
  end(std::move(result));
  return false;
}

void DnsLookup::on_answer() {
  with_memory([this] {
    if (ask_on(query_->result())) {
      ask();
    }
  });
}

void DnsLookup::left_queue(bool stopped, RunnableList&) {
  if (stopped) {
    end({.error = EAI_CANCELED});
    return;
  }
  with_memory([this] {
    query_->cancel();
    AresQuery::Result result = query_->result();
    result.ttl_ns = std::min(result.ttl_ns, kPartialTtlNs);
    if (ask_on(std::move(result))) {
      ask();
    }
  });
}

}  // namespace workflow

#include "kernel/DnsLookup.h"

#include <netdb.h>

#include <algorithm>
#include <new>
#include <utility>

namespace workflow {

namespace {

// Names below "onion" belong to another network, and must not be sent to name servers (RFC 7686,
// 2).
bool is_onion(std::string_view name) {
  if (name.ends_with('.')) {
    name.remove_suffix(1);
  }
  return name == "onion" || name.ends_with(".onion");
}

// The joint answer, once both families were answered.
DnsAnswer join(DnsAnswer one, DnsAnswer other) {
  if (one.error != 0 && other.error != 0) {
    // Some servers deny the whole name when they are asked for a family that it does not have.
    return {.error = one.error == EAI_NODATA ? one.error : other.error};
  }
  if (one.error != 0 || other.error != 0) {
    return one.error == 0 ? one : other;
  }
  one.ttl_ns = std::min(one.ttl_ns, other.ttl_ns);
  one.addresses.insert(one.addresses.end(), other.addresses.begin(), other.addresses.end());
  return one;
}

// Decides which of several failures is reported: the one with the highest weight. If this process
// has run out of a resource, the other failures do not matter. That a later try may succeed weighs
// more than that one server refuses.
int weight(int error) {
  switch (error) {
    case 0:
      return 0;
    case EAI_FAIL:
      return 1;
    case EAI_AGAIN:
      return 2;
    default:
      return 3;
  }
}

bool is_lack_of_resources(int error) {
  return weight(error) == 3;
}

}  // namespace

DnsLookup::DnsLookup(Poller& poller, Owner& owner, std::string key, std::string_view host,
                     int family)
    : poller_(poller), owner_(owner), key_(std::move(key)), host_(host), family_(family) {}

bool DnsLookup::is_open(int family) const {
  return std::find(open_families_.begin(), open_families_.end(), family) != open_families_.end();
}

template <class Step>
void DnsLookup::with_memory(Step step) {
  try {
    step();
    return;
  } catch (const std::bad_alloc&) {
    // end() is called below, outside the catch block.
  }
  end({.error = EAI_MEMORY});
}

void DnsLookup::end(DnsAnswer answer) {
  poller_.timers().unschedule(this);
  owner_.end(*this, std::move(answer));
}

void DnsLookup::end_partly() {
  if (!known_ || known_->error != 0) {
    end(std::move(failure_));
    return;
  }
  known_->ttl_ns = std::min(known_->ttl_ns, kPartialTtlNs);
  end(std::move(*known_));
}

void DnsLookup::start(std::shared_ptr<const ResolvConf> conf, size_t first_server) {
  conf_ = std::move(conf);
  first_server_ = first_server;
  with_memory([this] {
    if (!is_onion(host_)) {
      candidates_ = conf_->candidates(host_);
      std::erase_if(candidates_, is_onion);
    }
    if (candidates_.empty()) {
      end({.error = EAI_NONAME});
      return;
    }
    begin_candidate();
    ask();
  });
}

void DnsLookup::begin_candidate() {
  asked_ = 0;
  open_families_.clear();
  for (const int family : {AF_INET, AF_INET6}) {
    if (family_ == AF_UNSPEC || family_ == family) {
      open_families_.push_back(family);
    }
  }
  known_.reset();
  failure_ = {};
}

void DnsLookup::ask() {
  const size_t servers = conf_->servers.size();
  for (;;) {
    if (asked_ == servers * static_cast<size_t>(conf_->attempts)) {
      end_partly();
      return;
    }
    const HostAddress& server = conf_->servers[(first_server_ + asked_) % servers];
    asked_++;
    AresQuery::Owner& query_owner = *this;
    query_ = std::make_unique<AresQuery>(poller_, server, query_owner);
    const int64_t now_ns = poller_.clock().now_ns();
    if (!poller_.timers().schedule(this, saturating_add(now_ns, conf_->timeout_ns))) {
      end({.error = EAI_CANCELED});
      return;
    }
    const int family = open_families_.size() > 1 ? AF_UNSPEC : open_families_.front();
    if (!query_->start(candidates_[candidate_], family)) {
      return;
    }
    if (!ask_on(true)) {
      return;
    }
  }
}

void DnsLookup::take(int family, DnsAnswer answer) {
  if (answer.is_verdict()) {
    std::erase(open_families_, family);
    known_ = known_ ? join(std::move(*known_), std::move(answer)) : std::move(answer);
  } else if (weight(answer.error) > weight(failure_.error)) {
    failure_ = std::move(answer);
  }
}

bool DnsLookup::ask_on(bool in_time) {
  for (const int family : std::vector<int>(open_families_)) {
    take(family, query_->answer(family));
  }
  if (!open_families_.empty()) {
    const bool enough = !in_time && known_ && known_->error == 0;
    if (enough || is_lack_of_resources(failure_.error)) {
      end_partly();
      return false;
    }
    return true;
  }
  if (known_->error != 0) {
    exists_ |= known_->error == EAI_NODATA;
    candidate_++;
    if (candidate_ < candidates_.size()) {
      begin_candidate();
      return true;
    }
    known_->error = exists_ ? EAI_NODATA : EAI_NONAME;
  }
  end(std::move(*known_));
  return false;
}

void DnsLookup::on_answer() {
  with_memory([this] {
    if (ask_on(true)) {
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
    if (ask_on(false)) {
      ask();
    }
  });
}

}  // namespace workflow

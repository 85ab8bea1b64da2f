#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/AresQuery.h"
#include "kernel/Poller.h"
#include "kernel/ResolvConf.h"
#include "kernel/ResolveRequest.h"

namespace workflow {

// The search for one name's addresses among name servers: which names, which servers, how often,
// how long. All who want the same wait for the same look-up.
//
// Owned by the resolver, which is told of its end exactly once. Poller's thread only, but
// `requests`, which the resolver's mutex guards, and the constant parts.
//
// Invariant: while it has a query it has a timer in the poller's queue, or is being told of one of
// the two. So it ends in time, and when the poller stops its timers.
class DnsLookup final : public Runnable, private TimerNode, private AresQuery::Owner {
 public:
  class Owner {
   public:
    // What was posted has arrived at the poller.
    virtual void begin(DnsLookup& lookup) = 0;
    // The look-up has ended; may destroy it. EAI_CANCELED when the poller has stopped.
    virtual void end(DnsLookup& lookup, AresQuery::Result result) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // `host` in lower case; `key` is the owner's.
  DnsLookup(Poller& poller, Owner& owner, std::string key, std::string_view host, int family);
  ~DnsLookup() override = default;

  const std::string& key() const { return key_; }
  const std::string& host() const { return host_; }
  int family() const { return family_; }
  const ResolvConf* conf() const { return conf_.get(); }

  // Once; may end before it returns.
  void start(std::shared_ptr<const ResolvConf> conf, size_t first_server);

  ResolveRequestList requests;

 private:
  // An answer that lacks a family whose question was not answered in time is believed so long.
  static constexpr int64_t kPartialTtlNs = 30 * kNsPerSec;

  void take_turn() override { owner_.begin(*this); }
  void left_queue(bool stopped, RunnableList& finished) override;
  void on_answer() override;

  // Asks until there is something to wait for, or the end.
  void ask();
  // What a query has brought: whether to ask on. Otherwise the look-up has ended.
  bool ask_on(AresQuery::Result result);
  void end(AresQuery::Result result);
  // Calls step(); if memory runs out, the look-up ends.
  template <class Step>
  void with_memory(Step step);

  Poller& poller_;
  Owner& owner_;
  const std::string key_;
  const std::string host_;
  const int family_;
  std::shared_ptr<const ResolvConf> conf_;
  std::vector<std::string> candidates_;
  size_t candidate_ = 0;
  size_t first_server_ = 0;
  size_t asked_ = 0;     // questions about this candidate
  bool exists_ = false;  // a candidate does, without such addresses
  int failure_ = 0;
  std::unique_ptr<AresQuery> query_;
};

}  // namespace workflow

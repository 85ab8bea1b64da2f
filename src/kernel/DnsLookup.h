#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/AresQuery.h"
#include "kernel/DnsMessage.h"
#include "kernel/Poller.h"
#include "kernel/ResolvConf.h"
#include "kernel/ResolveRequest.h"

namespace workflow {

// The search for one name's addresses among name servers: which names, which servers, how often,
// how long. All who want the same wait for the same look-up.
//
// If both families are wanted, each has to be answered, with addresses or with the word that there
// are none. A family whose question failed is asked for again, at the next server or in the next
// attempt, without the one that was answered. Only when the attempts are used up, or when a
// question was not answered in time, are the addresses of the other family enough.
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
    virtual void end(DnsLookup& lookup, DnsAnswer answer) noexcept = 0;

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
  // Whether this family was wanted, and no server has answered for it.
  bool is_open(int family) const;

  // Once; may end before it returns.
  void start(std::shared_ptr<const ResolvConf> conf, size_t first_server);

  ResolveRequestList requests;

 private:
  // The addresses of one family are believed so long if the other could not be found out.
  static constexpr int64_t kPartialTtlNs = 30 * kNsPerSec;

  void take_turn() override { owner_.begin(*this); }
  void left_queue(bool stopped, RunnableList& finished) override;
  void on_answer() override;

  void begin_candidate();
  // Asks until there is something to wait for, or the end.
  void ask();
  // What the query has brought for one family.
  void take(int family, DnsAnswer answer);
  // What the query has brought, which may not have ended in time: whether to ask on. Otherwise the
  // look-up has ended.
  bool ask_on(bool in_time);
  void end(DnsAnswer answer);
  // When families remain open.
  void end_partly();
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
  bool exists_ = false;  // a candidate does, without such addresses
  // About this candidate:
  size_t asked_ = 0;                // queries
  std::vector<int> open_families_;  // wanted, and not yet answered
  std::optional<DnsAnswer> known_;  // of the families that were answered
  DnsAnswer failure_;               // why the others were not
  std::unique_ptr<AresQuery> query_;
};

}  // namespace workflow

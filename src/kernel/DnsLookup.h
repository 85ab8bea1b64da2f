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

// The search for one name's addresses at name servers. It decides which names to ask for, which
// servers to ask, how often, and how long to wait. All requests for the same name and family wait
// for the same look-up.
//
// If both families are wanted, each has to be answered, with addresses or with the statement that
// there are none. A family whose question failed is asked for again, at the next server or in the
// next attempt, without the one that was answered. Only when the attempts are used up, or when a
// question was not answered in time, are the addresses of the other family enough.
//
// Owned by the resolver, whose end() is called exactly once. Used on the poller's thread only,
// except for `requests`, which the resolver's mutex guards, and the constant members.
//
// Invariant: while it has a query, its timer is in the poller's queue, or on_answer() or
// left_queue() is being called. So it ends in time, and it ends when the poller stops its timers.
class DnsLookup final : public Runnable, private TimerNode, private AresQuery::Owner {
 public:
  class Owner {
   public:
    // The posted look-up has arrived at the poller's thread.
    virtual void begin(DnsLookup& lookup) = 0;
    // The look-up has ended; may destroy it. EAI_CANCELED when the poller has stopped.
    virtual void end(DnsLookup& lookup, DnsAnswer answer) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // `host` must be in lower case. `key` is for the owner's use.
  DnsLookup(Poller& poller, Owner& owner, std::string key, std::string_view host, int family);
  ~DnsLookup() override = default;

  const std::string& key() const { return key_; }
  const std::string& host() const { return host_; }
  int family() const { return family_; }
  const ResolvConf* conf() const { return conf_.get(); }
  // Whether this family was wanted, and no server has answered for it.
  bool is_open(int family) const;

  // To be called once. The look-up may end before this returns.
  void start(std::shared_ptr<const ResolvConf> conf, size_t first_server);

  ResolveRequestList requests;

 private:
  // The longest time for which the addresses of one family are valid if the other could not be
  // found out.
  static constexpr int64_t kPartialTtlNs = 30 * kNsPerSec;

  void run_queued() override { owner_.begin(*this); }
  void left_queue(bool stopped, RunnableList& finished) override;
  void on_answer() override;

  void begin_candidate();
  // Asks servers until one query has to be waited for, or the look-up has ended.
  void ask();
  // Uses the query's answer for one family.
  void take(int family, DnsAnswer answer);
  // Uses the answers of the query. `in_time` is false if the query did not end in time. Returns
  // true if the look-up has to go on asking; otherwise the look-up has ended.
  bool ask_on(bool in_time);
  void end(DnsAnswer answer);
  // Ends the look-up although families remain open.
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
  bool exists_ = false;  // a candidate exists, but has no such addresses
  // About the current candidate:
  size_t asked_ = 0;                // how many queries were sent
  std::vector<int> open_families_;  // wanted, and not yet answered
  std::optional<DnsAnswer> known_;  // of the families that were answered
  DnsAnswer failure_;               // why the others were not answered
  std::unique_ptr<AresQuery> query_;
};

}  // namespace workflow

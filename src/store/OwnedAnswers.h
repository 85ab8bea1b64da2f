#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/MemoryJournal.h"
#include "store/StoreAnswers.h"
#include "store/StoreBytes.h"
#include "store/StoreRequest.h"

namespace workflow {

// The answers to requests with an id, in memory and in a journal (rule 12 of StoreBackend.h).
//
// Not thread-safe. Pure.
//
// Invariants:
// 1. A session has at most `remembered` answers, those with the largest numbers. Answers up to
//    `forgotten` may be missing, those above are not.
// 2. There are at most kMaxSessions sessions, those that were used last. `used` counts uses. All
//    together they have at most kFullSessions times `remembered` answers, so that memory is
//    bounded: the session that was used longest ago goes first, as a whole.
// 3. Once a session was dropped (has_dropped), what an unknown session has asked may be forgotten.
// 4. Each answer has a record in the journal, and each session one or a place in `changed_`.
class OwnedAnswers final : public StoreAnswers {
 public:
  struct Answer : JournalEntry {
    Answer(uint64_t session_of_request, uint64_t number_of_request)
        : JournalEntry(Kind::kAnswer), session(session_of_request), number(number_of_request) {}
    const uint64_t session;
    const uint64_t number;
    bool used_up = false;
    std::string text;
  };

  struct Session : JournalEntry {
    explicit Session(uint64_t id_of_session) : JournalEntry(Kind::kSession), id(id_of_session) {}
    const uint64_t id;
    std::map<uint64_t, Answer> answers;  // by number
    uint64_t forgotten = 0;
    uint64_t used = 0;
    bool changed = false;
  };

  OwnedAnswers(MemoryJournal& journal, size_t remembered)
      : journal_(journal), remembered_(remembered) {}

  // Makes a session known, so that what it has not asked is not taken for forgotten.
  void know(uint64_t session);
  bool knows(uint64_t session) const { return sessions_.contains(session); }

  // Writes what has changed of the sessions. Answers are written when they are added.
  void write();
  void write_again(Answer& answer);
  void write_again(Session& session);

  // Reads the rest of a record, before anything else is done. Returns false if it is none.
  bool read(char kind, StoreBytes::Reader& record);
  void restore(bool has_dropped);
  bool has_dropped() const { return has_dropped_; }

 private:
  static constexpr size_t kMaxSessions = 256;
  static constexpr size_t kFullSessions = 4;

  Found find(const WFStoreRequestId& id, WFStoreResult& result) override;
  void keep(const WFStoreRequestId& id, std::optional<std::string>&& text) override;
  void note_changed(Session& session);
  void trim(Session& session);
  void drop(uint64_t session);
  // Drops sessions as long as there are too many or too many answers, but not this one.
  void drop_oldest(uint64_t kept);

  MemoryJournal& journal_;
  const size_t remembered_;
  std::unordered_map<uint64_t, Session> sessions_;
  size_t answers_ = 0;  // of all sessions
  std::vector<uint64_t> changed_;
  uint64_t uses_ = 0;
  bool has_dropped_ = false;
};

}  // namespace workflow

/*
 * The protocol of waiting tasks (WaitingTask): start, senders, stop, dismiss, and
 * the canceller of the scope.
 *
 * The names are those of docs/task-internals.md and of the code:
 *   parts          the atomic in which they meet: started, claimed, published, aborted, cancelled, and
 *                  of a task that was cancelled part_ended, part_late
 *   waiting_lock   the WaitingTasks lock of the list of started tasks, which guards in_list
 *   registry_lock  the NameRegistry lock of the name's shard, which guards linked
 *   ended          Runtime::waits_ended()
 *   reg            the registration of the series in its scope (CancelRegistration::state_)
 *   scope_ended    the scope has a reason. Its mutex is a leaf and guards nothing else but reg, so each
 *                  use of it is one step (scope.pml)
 *   users          of a selector: the task, and its candidates as one
 *
 * One task. By default one sender holds a pointer to it, as to an anonymous task. Every access to
 * shared data is a step of its own; memory is sequentially consistent. An assertion and its ghost
 * state belong to the step they describe.
 *
 * Parameters (-D):
 *   NAMED         two senders that know its name only
 *   SELECTOR      two candidates that hold pointers, each of which submits a message or null
 *   UNDELIVERED        nothing is delivered
 *   WITH_STOP     one thread ends the waits
 *   WITH_SCOPE    the series runs in a scope, and one thread cancels that (rule 9)
 *   WITH_DISMISS  the owner may drop the task instead of starting it (NAMED, SELECTOR)
 *   MUT_x         breaks one rule: see the file `mutations`
 */

#define NOBODY 0

/* Shared data. */
bool started, claimed, published, aborted;
byte waiting_lock = NOBODY, registry_lock = NOBODY;
bool in_list, linked;
bool ended;
#ifdef WITH_SCOPE
mtype = { OUTSIDE, ENTERED, CALLED, HANDED_OVER };
mtype reg = OUTSIDE;
bool scope_ended, cancelled, part_ended, part_late;
#endif
byte users = 2, candidates_left = 2;

/* Ghosts. */
bool alive = true, dropped;
byte callbacks, delivered;
bool aborted_seen, message_seen, message_written, nothing_came, error_written;

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#define TOUCH assert(alive)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

#ifdef SELECTOR
inline unref() {
  d_step {
    TOUCH;
    users--;
    if
    :: users == 0 -> alive = false
    :: else
    fi
  }
}
#endif

#ifdef WITH_SCOPE
/* WaitingTask::end_part. */
inline end_part(part, other) {
  d_step {
    TOUCH;
    part = true;
    alive = !other
  }
}
#endif

/* The callback, and the end of the task: by the thread that owns the completion. */
inline complete_task() {
  d_step {
    TOUCH;
    assert(callbacks == 0 && !dropped);
    callbacks++;
    message_seen = message_written;
    aborted_seen = aborted;
    assert(message_seen + aborted_seen + nothing_came + error_written == 1);
#ifdef WITH_SCOPE
    RULE(reg == OUTSIDE);
#endif
    assert(!in_list)
  };
#ifdef SELECTOR
  unref()
#else
#ifdef MUT_FREE_ABORTED
  alive = false
#elif defined(WITH_SCOPE) && !defined(NAMED)
#ifdef MUT_FREE_CANCELLED
  alive = aborted
#else
  if
  :: cancelled -> end_part(part_ended, part_late)
  :: else -> alive = aborted
  fi
#endif
#else
  alive = aborted
#endif
#endif
}

inline take_out_of_list() {
#ifdef MUT_KEEPS_IN_LIST
  skip
#else
  LOCK(waiting_lock);
  d_step { TOUCH; in_list = false };
  UNLOCK(waiting_lock)
#endif
}

/* SubTask::leave_scope: sets `mine` if the caller completes the task. */
inline leave_scope() {
#if defined(WITH_SCOPE) && !defined(MUT_STAYS_IN_SCOPE)
  d_step { TOUCH; mine = reg != CALLED; reg = (mine -> OUTSIDE : HANDED_OVER) }
#else
  mine = true
#endif
}

/* WaitingTask::complete, complete_all. */
inline end_task() {
  take_out_of_list();
  leave_scope();
  if
  :: mine -> complete_task()
  :: else
  fi
}

/* WaitingTask::claim. */
inline claim() {
  d_step {
    TOUCH;
#ifdef MUT_CLAIM_IGNORES_ABORTED
    wins = !claimed;
#else
    wins = !claimed && !aborted;
#endif
#ifndef MUT_NO_CLAIM
    claimed = true
#endif
  }
}

/* WaitingTask::publish. `owns`: complete_task() is the caller's. */
inline publish() {
  d_step { TOUCH; owns = started; published = true };
#ifdef MUT_TOUCHES_AFTER_PUBLISH
  TOUCH
#endif
}

#ifdef WITH_SCOPE
/* WaitingTask::claim_for, and publish: the canceller brings an error. */
inline bring_error() {
  owns = false;
#ifdef MUT_CANCELLED_AFTER_CLAIM
  claim();
  if
  :: wins -> d_step { TOUCH; cancelled = true }
  :: else
  fi;
#else
  d_step {
    TOUCH;
    wins = !claimed && !aborted;
    claimed = claimed || wins;
    cancelled = cancelled || wins
  };
#endif
  if
  :: wins ->
     d_step { TOUCH; error_written = true };
     publish()
  :: else
  fi
}

/* WaitingTask::release_late. */
inline release_late() {
  d_step { TOUCH; owns = cancelled };
  if
#ifndef MUT_LATE_STAYS
  :: owns -> end_part(part_late, part_ended)
#else
  :: owns
#endif
  :: else
  fi;
  owns = false
}
#endif

inline bring() {
  owns = false;
  claim();
  if
  :: wins ->
#ifdef MUT_PUBLISH_BEFORE_MESSAGE
     publish();
     message_written = true;
#else
     d_step { TOUCH; message_written = true };
     publish();
#endif
     delivered++
#if defined(WITH_SCOPE) && !defined(NAMED) && !defined(SELECTOR)
  :: else -> release_late()
#else
  :: else
#endif
  fi
}

/* By name: NamedMessageTask::deliver_to. */
proctype Named() {
  bool wins, owns, mine, found;
  LOCK(registry_lock);
  d_step {
    found = linked;
    if
    :: found -> TOUCH; linked = false
    :: else
    fi
  };
#ifdef MUT_BRING_BEFORE_UNLINK
  linked = found;
#endif
#ifdef MUT_CLAIMS_WITHOUT_B
  UNLOCK(registry_lock);
#endif
  if
  :: found -> bring()
  :: else
  fi;
#ifdef MUT_BRING_BEFORE_UNLINK
  if
  :: found -> d_step { TOUCH; linked = false }
  :: else
  fi;
#endif
#ifndef MUT_CLAIMS_WITHOUT_B
  UNLOCK(registry_lock);
#endif
  if
  :: found && owns -> end_task()
  :: else
  fi
}

/* By a pointer. */
proctype Direct() {
  bool wins, owns, mine;
  bring();
  if
  :: owns -> end_task()
  :: else
  fi
}

#ifdef SELECTOR
/* WFSelectorTask::submit. */
proctype Candidate() {
  bool wins, owns, mine, last;
  if
  :: bring()
  :: owns = false
  fi;
  if
  :: owns -> end_task()
  :: else
  fi;
  d_step { TOUCH; candidates_left--; last = candidates_left == 0 };
  if
  :: last ->
     claim();
     owns = false;
     if
     :: wins ->
        d_step { TOUCH; nothing_came = true };
        publish()
     :: else
     fi;
     if
     :: owns -> end_task()
     :: else
     fi;
     unref()
  :: else
  fi
}
#endif

/* Takes the task out of its name when it is aborted or cancelled: leave_waiting(). */
inline leave() {
  LOCK(registry_lock);
  d_step { TOUCH; linked = false };
  UNLOCK(registry_lock)
}

proctype Owner() {
  bool ends, aborts, mine;
#ifdef WITH_SCOPE
  bool wins, owns;
#endif
#ifdef WITH_DISMISS
  if
  :: skip
  :: dropped = true;
#ifdef SELECTOR
     unref();
#else
     LOCK(registry_lock);
     linked = false;
     UNLOCK(registry_lock);
     alive = false;
#endif
     goto done
  fi;
#endif
  /* WaitingTask::dispatch */
  d_step { TOUCH; ends = published; started = published };
  if
  :: ends -> mine = true; goto complete
  :: else
  fi;
#ifdef WITH_SCOPE
  d_step { owns = scope_ended; reg = (scope_ended -> OUTSIDE : ENTERED) };
  if
  :: owns -> bring_error()
  :: else
  fi;
#endif
  /* WaitingTasks::start: each round is one compare-and-exchange of parts */
  LOCK(waiting_lock);
#ifndef MUT_START_IGNORES_ENDED
  aborts = ended;
#endif
#ifdef MUT_STARTED_BEFORE_LISTED
  d_step {
    TOUCH;
    started = true;
    aborts = aborts && !claimed;
    aborted = aborts;
    ends = published || aborts
  };
  UNLOCK(waiting_lock);
  if
  :: !ends ->
     LOCK(waiting_lock);
     d_step { TOUCH; in_list = true };
     UNLOCK(waiting_lock)
  :: else
  fi;
#else
  d_step {
    TOUCH;
    started = true;
    aborts = aborts && !claimed;
    aborted = aborts;
    ends = published || aborts;
    in_list = !ends
  };
  UNLOCK(waiting_lock);
#endif
#ifdef WITH_SCOPE
  if
  :: ends && (aborts || cancelled) -> leave()
  :: else
  fi;
#else
  if
  :: aborts -> leave()
  :: else
  fi;
#endif
  if
  :: ends -> leave_scope()
  :: else
  fi;
complete:
  if
  :: ends && mine -> complete_task()
  :: else
  fi;
done:
  skip
}

/* WaitingTasks::end_waits. */
proctype Stop() {
  bool taken, mine;
#ifndef MUT_ENDED_AFTER_LIST
  ended = true;
#endif
  LOCK(waiting_lock);
  d_step {
    taken = false;
    if
    :: in_list ->
       TOUCH;
#ifdef MUT_ABORTS_CLAIMED
       taken = true;
#else
       taken = !claimed;
#endif
       if
       :: taken -> aborted = true; in_list = false
       :: else
       fi
    :: else
    fi
  };
  UNLOCK(waiting_lock);
#ifdef MUT_ENDED_AFTER_LIST
  ended = true;
#endif
  if
  :: taken ->
     leave();
     leave_scope();
     if
     :: mine -> complete_task()
     :: else
     fi
  :: else
  fi
}

#ifdef WITH_SCOPE
/* CancelScope::cancel, WaitingTask::on_cancel. */
proctype ScopeCanceller() {
  bool wins, owns, mine;
  scope_ended = true;
  d_step {
    if
    :: reg == ENTERED -> TOUCH; reg = CALLED; mine = true
    :: else
    fi
  };
  if
  :: mine ->
     bring_error();
     if
     :: owns ->
#ifndef MUT_CANCELLED_KEEPS_NAME
        leave();
#endif
        take_out_of_list();
        leave_scope();
        RULE(!mine)
     :: else
     fi;
     d_step { TOUCH; mine = reg == HANDED_OVER; reg = OUTSIDE };
     if
     :: mine -> complete_task()
     :: else
     fi
  :: else
  fi
}
#endif

init {
  atomic {
    run Owner();
#if defined(NAMED)
    linked = true;
    run Named();
    run Named();
#elif defined(SELECTOR)
    run Candidate();
    run Candidate();
#elif !defined(UNDELIVERED)
    run Direct();
#endif
#ifdef WITH_STOP
    run Stop();
#endif
#ifdef WITH_SCOPE
    run ScopeCanceller();
#endif
  };
  /* All others have ended. */
  (_nr_pr == 1);
  d_step {
    assert(callbacks == 1 || dropped);
    assert(delivered == message_written);
    assert(dropped || delivered == message_seen);
    assert(!linked);
#ifdef WITH_SCOPE
    assert(reg == OUTSIDE && (!cancelled || !alive));
#endif
#ifdef SELECTOR
    assert(!alive);
#endif
  }
}

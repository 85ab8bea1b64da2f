/*
 * A periodic timer: how it is started again after each tick, and what ends it (rules 13 and 14), with a
 * name or without, its ticks one by one or overlapping. The names are those of handle.pml, and
 *   slots_lock, registry_lock  the locks of TimerSlots and NameRegistry. What happens under the
 *                PollerTimers lock is one step, so that lock has no variable
 *   marked       guarded by PollerTimers: it was ended (TimerNode::mark_)
 *   late         guarded by PollerTimers: the end of its scope was the first to mark it (kScopeEnded)
 *   restarts     guarded by PollerTimers: it is not queued, or will be again
 *   ticks        the timer's coming turn is a tick
 *   posted       the timer is with the handlers
 *   spawned      so many overlapping ticks are with the handlers
 *   users        atomic: the schedule and the overlapping ticks
 *   by_tick      atomic: a tick has ended it
 *   reg          the registration of the timer's series in its scope (CancelRegistration::state_)
 *   scope_ended  the scope has a reason for timers; it is ETIMEDOUT
 *
 * What happens under the PollerTimers lock or the CancelScope lock is one step: no other lock is taken
 * there, and what they guard is touched nowhere else. A thread that may end the timer may also never do
 * so. Memory is sequentially consistent. A timer that nothing ends ticks PASSES times and then is not
 * due any more; the handlers and the poller wait for ever.
 *
 * Parameters (-D):
 *   NAMED           the timer has a name, and a thread cancels by it
 *   OVERLAP         ticks overlap, on two handlers
 *   PASSES          how often its deadline passes                                    (2)
 *   WITH_STOP
 *   WITH_SCOPE      the series runs in a scope, and a thread cancels that
 *   WITH_NO_MEMORY  for a start, restart or overlapping tick; or its start is refused otherwise
 *   WITH_DUE        its time may have come already at its start, or, if ticks do not overlap, restart
 */

#ifndef PASSES
#define PASSES 2
#endif
#ifdef NAMED
#define CALLERS 2
#else
#define CALLERS 1
#endif

mtype = { NONE, SUCCESS, ABORTED, EINVAL, ENOMEM, ECANCELED, ETIMEDOUT, DUE };
mtype = { WON, RUNNING, DONE };
mtype = { OUTSIDE, ENTERED, CALLED, HANDED_OVER };
mtype = { BEFORE_START, BEFORE_RESTART, TAKEN, TOO_LATE };

/* Mutexes: the process that holds it, or 0. Order: TimerSlots, NameRegistry. */
byte slots_lock, registry_lock;

/* The slot of its handle, guarded by the TimerSlots lock. */
bool given_up, runner;

/* The timer. */
bool flag, poller_set, queued, marked, late, stopped, drained, ticks, posted, by_tick;
bool restarts = true;
byte users = 1;
byte spawned;
mtype outcome = NONE;
bool linked = true;
#ifdef WITH_SCOPE
mtype reg = OUTSIDE;
bool scope_ended;
#endif

/* Ghost state. */
bool alive = true;
bool called_back;
bool refused;    /* a start had no poller */
bool called;     /* by the canceller of the scope, or refused by the scope */
bool ended;      /* a call has reported the end: a cancel that won, end(), or the canceller of the scope */
byte winners;
byte running;    /* ticks */
byte passes;
byte returned;   /* how many cancellers have returned */

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#define TOUCH assert(alive)
#define HOLDS_NOTHING (slots_lock != _pid && registry_lock != _pid)

inline lock(mutex) { d_step { mutex == 0 -> mutex = _pid } }
inline unlock(mutex) { d_step { assert(mutex == _pid); mutex = 0 } }

/* By whom the timer belongs to: its turn comes on a handler. */
inline post() {
  d_step { assert(HOLDS_NOTHING); TOUCH; assert(!posted && !queued); posted = true }
}
inline set_outcome(how) {
  d_step { TOUCH; assert(!queued && outcome == NONE); outcome = how }
}

/* Sets `taken` if somebody has taken it out before. */
inline leave_name(taken) {
#ifdef NAMED
  d_step { registry_lock == 0 -> TOUCH; taken = taken || !linked; linked = false }
#else
  skip
#endif
}
/* Sets `mine` if the caller posts the timer; otherwise the canceller of the scope does. */
inline leave_scope(mine) {
#ifdef WITH_SCOPE
  d_step { TOUCH; mine = reg != CALLED; reg = (mine -> OUTSIDE : HANDED_OVER) }
#else
  mine = true
#endif
}

/* TimerTask::leave_with, by the owner of the completion; needs the locals taken and mine. */
inline leave_with(how) {
#ifndef MUT_RESTART_KEEPS_NAME
  leave_name(taken);
#endif
#ifdef MUT_OUTCOME_EARLY
  set_outcome((by_tick -> SUCCESS : (taken -> ECANCELED : how)));
#else
  set_outcome((taken -> ECANCELED : how));
#endif
  leave_scope(mine)
}

/* ---- Start and restart ---- */

inline choose_memory() {
#ifdef WITH_NO_MEMORY
  if
  :: memory = true
  :: memory = false
  fi
#else
  memory = true
#endif
}

/* Whether its time has come already: a start, or a restart of ticks that do not overlap. */
#ifdef WITH_DUE
#define IS_DUE (due && passes < PASSES)
inline choose_due() {
  if
  :: due = true
  :: due = false
  fi
}
#else
#define IS_DUE false
inline choose_due() { skip }
#endif

/*
 * PollerTimers::queue_or_refuse(), under the PollerTimers lock; needs the locals memory, due and verdict.
 */
inline queue_or_refuse() {
  if
  :: marked -> verdict = (late -> ETIMEDOUT : ECANCELED)
  :: !marked && stopped -> verdict = ABORTED
#ifdef WITH_DUE
  :: !marked && !stopped && IS_DUE -> verdict = DUE; passes++
#endif
  :: !marked && !stopped && !IS_DUE && !memory -> verdict = ENOMEM
  :: else -> queued = true
  fi;
#ifdef MUT_DUE_ENDS_RESTARTS
  restarts = restarts && queued
#elif !defined(MUT_REFUSED_STILL_RESTARTS)
  restarts = restarts && (queued || verdict == DUE)
#endif
}

/*
 * PeriodicTimer::restart(); needs the locals memory, due, verdict, taken and mine. Queued: it is others'
 * now. `mine`: the caller ends it.
 */
inline restart() {
  choose_memory();
#ifndef OVERLAP
  choose_due();
#endif
  d_step {
    TOUCH;
    verdict = NONE;
#ifdef MUT_RESTART_IGNORES_MARK
    queued = !stopped;
    verdict = (stopped -> ABORTED : NONE);
    restarts = queued
#elif defined(MUT_RESTART_IGNORES_STOP)
    verdict = (marked -> (late -> ETIMEDOUT : ECANCELED) : NONE);
    queued = !marked;
    restarts = queued
#else
    queue_or_refuse()
#endif
  };
#ifdef MUT_RESTART_FORGETS_MARK
  verdict = ((verdict == ECANCELED && scope_ended) -> ETIMEDOUT : verdict);
#endif
  if
  :: verdict != NONE && verdict != DUE -> leave_with(verdict)
  :: else -> mine = false
  fi
#ifdef MUT_RESTART_IGNORES_HAND_OVER
  ; mine = verdict != NONE && verdict != DUE
#endif
}

/* PeriodicTimer::left_queue(), not stopped; needs the locals of restart. */
inline left_queue() {
#ifdef OVERLAP
  choose_memory();
#ifdef MUT_SPAWNS_AFTER_RESTART
  restart();
  d_step { TOUCH; users++; spawned++ };
#else
  if
#ifdef MUT_TICK_IS_NO_USER
  :: memory -> spawned++
#else
  :: memory -> d_step { TOUCH; users++ }; spawned++
#endif
  :: else
  fi;
  restart();
#endif
  if
  :: mine -> post()
  :: else
  fi
#else
  d_step { TOUCH; ticks = true };
  post()
#endif
}

proctype Owner() {
  bool old, taken, mine, memory;
#ifdef WITH_DUE
  bool due;
#endif
  mtype verdict = NONE;
#ifdef WITH_SCOPE
  d_step { TOUCH; poller_set = true };
  d_step {
    if
    :: scope_ended -> refused = true; called = true
    :: else -> reg = ENTERED
    fi
  };
#elif defined(WITH_NO_MEMORY)
  if
  :: refused = true
  :: skip
  fi;
#endif
  if
  :: refused ->
     d_step { TOUCH; poller_set = false };
     d_step { TOUCH; verdict = (flag -> ECANCELED : (called -> ETIMEDOUT : EINVAL)); flag = true }
  :: else ->
     choose_memory();
     choose_due();
     d_step { TOUCH; poller_set = true };
     d_step {
       TOUCH;
       old = flag;
       flag = true;
       if
       :: old -> verdict = ECANCELED
       :: else -> queue_or_refuse()
       fi
     }
  fi;
  if
#ifdef WITH_DUE
  :: verdict == DUE -> d_step { due = false; verdict = NONE }; left_queue()
#endif
  :: verdict != NONE && verdict != DUE ->
     leave_with(verdict);
     if
     :: mine -> post()
     :: else
     fi
  :: else
  fi;
  skip;
  d_step { old = false; taken = false; mine = false; memory = false; verdict = NONE }
}

/* ---- Ends ---- */

/* PollerTimers::end(), under the PollerTimers lock; needs the locals first and how. */
inline end_timer() {
  first = !marked;
  how = (queued -> TAKEN : ((restarts && first) -> BEFORE_RESTART : TOO_LATE));
#ifdef MUT_SECOND_MARK_WINS
  how = ((how == TOO_LATE && restarts) -> BEFORE_RESTART : how);
#endif
#ifdef MUT_END_MARKS_NOTHING
  marked = how == TAKEN;
#elif defined(MUT_TAKEN_UNMARKED)
  marked = marked || how != TAKEN;
#elif defined(MUT_TOO_LATE_UNMARKED)
  marked = marked || how != TOO_LATE;
#else
  marked = true;
#endif
  restarts = restarts && !queued;
  queued = false
}

/* PollerTimers::cancel(); needs the locals old, first and how. */
inline cancel_timer() {
  d_step { TOUCH; old = flag; flag = true };
  if
  :: !old -> how = BEFORE_START
  :: old && !poller_set -> assert(refused); how = TOO_LATE
  :: old && poller_set ->
#ifdef MUT_MARK_WITHOUT_P
     d_step { TOUCH; how = (queued -> TAKEN : ((restarts && !marked) -> BEFORE_RESTART : TOO_LATE)) };
     d_step {
       TOUCH;
       if
       :: how == TAKEN -> queued = false; restarts = false; marked = true
       :: else -> marked = true
       fi
     }
#else
     d_step { TOUCH; end_timer() }
#endif
  fi
}

proctype HandleCanceller() {
  bool old, first, taken, owns;
  mtype how, answer;
  if
  :: skip
  :: goto away
  fi;
  lock(slots_lock);
  if
  :: given_up -> answer = DONE; assert(called_back)
  :: !given_up && runner -> answer = RUNNING
  :: !given_up && !runner ->
     leave_name(taken);
     if
     :: taken -> answer = RUNNING
     :: else ->
        cancel_timer();
        d_step {
          owns = how == TAKEN;
#ifdef NAMED
          answer = WON;
#else
          answer = (how == TOO_LATE -> RUNNING : WON);
#endif
          winners = winners + (answer == WON)
        };
        if
        :: owns -> set_outcome(ECANCELED); leave_scope(owns)
        :: else
        fi
     fi
  fi;
  unlock(slots_lock);
  if
  :: owns -> post()
  :: else
  fi;
away:
  skip;
  d_step {
    ended = ended || answer == WON;
    returned++;
    old = false; first = false; taken = false; owns = false; how = 0; answer = 0
  }
}

#ifdef NAMED
proctype NameCanceller() {
  bool old, first, mine, counted;
  mtype how;
  if
  :: skip
  :: goto away
  fi;
  lock(registry_lock);
  if
  :: linked ->
     d_step { TOUCH; linked = false; winners++; counted = true };
     cancel_timer();
     if
     :: how == TAKEN -> set_outcome(ECANCELED); leave_scope(mine)
     :: else
     fi
  :: else
  fi;
  unlock(registry_lock);
  if
  :: mine -> post()
  :: else
  fi;
away:
  skip;
  d_step {
    ended = ended || counted;
    returned++;
    old = false; first = false; mine = false; counted = false; how = 0
  }
}
#endif

#ifdef WITH_SCOPE
/* CancelScope::cancel, TimerTask::on_cancel, PollerTimers::end_for_scope. */
proctype ScopeCanceller() {
  bool taken, owner, mine;
  if
  :: skip
  :: goto away
  fi;
  scope_ended = true;
  d_step {
    if
    :: reg == ENTERED -> TOUCH; reg = CALLED; called = true; mine = true
    :: else
    fi
  };
  if
  :: mine ->
     d_step {
       TOUCH;
       assert(poller_set);
       owner = queued;
       late = late || !marked;
#ifdef MUT_SCOPE_TAKES_UNMARKED
       marked = marked || !queued;
#else
       marked = true;
#endif
       restarts = restarts && !queued;
       queued = false
     };
     if
     :: owner -> leave_with(ETIMEDOUT); RULE(!mine)
     :: else
     fi;
     d_step { TOUCH; mine = reg == HANDED_OVER; reg = OUTSIDE };
     if
     :: mine -> post()
     :: else
     fi;
     d_step { ended = true; taken = false; owner = false; mine = false }
  :: else
  fi;
away:
  skip
}
#endif

proctype Stopper() {
  if
  :: d_step { stopped = true }
  :: skip
  fi
}

/* ---- Expiry and stop ---- */

proctype Poller() {
  bool taken, mine, memory, over;
#ifdef WITH_DUE
  bool due;
#endif
  mtype verdict;
end:
  do
  :: d_step {
       queued && (stopped || passes < PASSES) ->
       TOUCH;
       queued = false;
       over = stopped;
       passes = passes + !over;
#ifndef MUT_STOP_LEAVES_RESTARTS
       restarts = restarts && !over
#endif
     };
     if
     :: over ->
        leave_with(ABORTED);
        if
        :: mine -> post()
        :: else
        fi
     :: else ->
        left_queue()
     fi;
     d_step { taken = false; mine = false; memory = false; over = false; verdict = NONE }
  :: d_step { stopped && !queued -> drained = true } -> break
  od
}

/* ---- Turns on the handlers ---- */

/* Whether the tick begins: it may have been ended by the time that it does. */
inline look() {
#ifdef MUT_TICK_WITHOUT_LOOK
  d_step { TOUCH; seen = false; assert(!ended) }
#else
  d_step { TOUCH; seen = marked; assert(seen || !ended) }
#endif
}

inline call_tick() {
  d_step {
    TOUCH;
    running++;
    assert(!called_back);
#ifndef OVERLAP
    assert(running == 1)
#endif
  };
  if
  :: skip
  :: end_with_tick()
  fi;
  d_step { TOUCH; running--; taken = false }
}

inline end_with_tick() {
  d_step { ended_before = ended };
#ifndef MUT_END_LOOKS_NOT
  d_step { TOUCH; seen = marked };
#endif
  if
  :: seen
  :: else ->
#ifndef MUT_END_IGNORES_NAME
     leave_name(taken);
#endif
     if
     :: taken
     :: else ->
        d_step { TOUCH; end_timer() };
        if
#ifndef NAMED
        :: how == TOO_LATE
        :: how != TOO_LATE ->
#else
        :: true ->
#endif
           d_step { TOUCH; assert(!ended_before); by_tick = true };
           if
           :: how == TAKEN ->
#ifdef MUT_END_STAYS_IN_SCOPE
              mine = true;
#else
              leave_scope(mine);
#endif
              if
              :: mine -> post()
              :: else
              fi
           :: else
           fi;
           ended = true
        fi
     fi
  fi;
  d_step { first = false; how = 0; ended_before = false; seen = false; mine = false }
}

/* The last user goes on to the callback, and frees it. */
inline drop_user() {
  d_step { TOUCH; assert(users > 0); users--; last = users == 0 };
  if
  :: last ->
     d_step {
       TOUCH;
#ifndef MUT_OUTCOME_EARLY
       outcome = (by_tick -> SUCCESS : outcome);
#endif
       assert(outcome != NONE && !called_back);
       assert(running == 0 && !queued && !posted && spawned == 0);
#ifdef NAMED
       assert(!linked);
#endif
#ifdef WITH_SCOPE
       RULE(reg == OUTSIDE);
#endif
       last = false
     };
     lock(slots_lock);
     runner = true;
     unlock(slots_lock);
     called_back = true;
     lock(slots_lock);
     given_up = true;
     unlock(slots_lock);
     alive = false
  :: else
  fi
}

proctype Handler() {
  bool seen, taken, mine, memory, last, first, ended_before;
#ifdef WITH_DUE
  bool due;
#endif
  mtype verdict, how;
end:
  do
#ifdef OVERLAP
  :: d_step { spawned > 0 -> spawned-- };
     look();
     if
     :: seen
     :: else -> call_tick()
     fi;
     d_step { seen = false };
     drop_user()
  :: d_step { posted -> posted = false };
     drop_user()
#else
  :: d_step { posted -> posted = false };
     if
     :: ticks ->
        ticks = false;
        look();
        if
        :: seen
        :: else -> call_tick()
        fi;
        d_step { seen = false };
        restart();
        if
#ifdef WITH_DUE
        :: verdict == DUE -> d_step { TOUCH; ticks = true; due = false }; post()
#endif
        :: mine -> drop_user()
        :: else
        fi
     :: else -> drop_user()
     fi;
     d_step { verdict = NONE; taken = false; mine = false; memory = false }
#endif
  :: !alive -> break
  od
}

init {
  atomic {
    run Owner();
    run Poller();
    run Handler();
#ifdef OVERLAP
    run Handler();
#endif
    run HandleCanceller();
#ifdef NAMED
    run NameCanceller();
#endif
#ifdef WITH_STOP
    run Stopper();
#endif
#ifdef WITH_SCOPE
    run ScopeCanceller();
#endif
  };
  timeout;
  d_step {
    assert(returned == CALLERS && !slots_lock && !registry_lock && !posted && !ticks && !spawned && !running);
    assert(called_back == !alive);
    /* It goes on only if nothing has ended it. */
    assert(called_back || (queued && users == 1 && !stopped && !by_tick && !called && winners == 0));
    assert(!called_back || (users == 0 && !queued));
    assert(winners <= 1);
    assert(winners == 0 || outcome == ECANCELED);
    assert(outcome != ECANCELED || winners == 1);
    assert(outcome != ETIMEDOUT || called);
    assert(outcome != SUCCESS || by_tick);
    assert(!by_tick || outcome == SUCCESS);
    assert(outcome != ABORTED || stopped)
  }
}

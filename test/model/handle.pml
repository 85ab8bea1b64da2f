/*
 * The handle of a timer: cancel, cancel_and_wait, reschedule and remaining against start, expiry, stop,
 * a refused start, drop, cancel by name and the end of its scope (rules 9 to 12), also of a timer that
 * was refused when it was created (rule 19). The names are those of timer.pml, and
 *   slots_lock   the TimerSlots lock of the slot's shard
 *   generation   guarded by slots_lock: the handle is of generation 0
 *   user         guarded by slots_lock: whose slot it is
 *   runner       guarded by slots_lock: the thread that is in the callback, or destroys it
 *   closed       guarded by slots_lock: no cancel by handle wins any more
 *   delay        atomic: where start and move meet
 *   poller_set   start has written TimerNode::timers_
 *   registry_lock, timers_lock  the locks of NameRegistry and PollerTimers, as in timer.pml
 *   deadline     guarded by timers_lock while it is queued: when it expires
 *   queued_for   guarded by timers_lock: the deadline that the queue knows, never a later one
 *   reg          the registration of the timer's series in its scope (CancelRegistration::state_)
 *   scope_ended  the scope has a reason for timers; it is ETIMEDOUT, to tell it from a cancel
 *   marked       guarded by timers_lock: end_for_scope() came (TimerNode::mark_)
 *
 * The processes that reschedule timers, and that ask how long they still wait, are in moves.pml. The
 * model scope.pml shows how scopes work. Here each use of the mutex of a scope is one step, because
 * that mutex is a leaf and guards nothing else.
 *
 * Deadlines are just numbers: what is queued may be due at any moment, whatever the number, and the
 * numbers say which deadline it is. Without -DNAMED the timer has no name. Memory is sequentially
 * consistent. The slot is used again as soon as it is free, and the task is freed as soon as it can be.
 *
 * Parameters (-D):
 *   NAMED           the timer has a name, and a thread cancels by it
 *   CANCELLERS      threads that cancel by handle; the first waits                      (1)
 *   MOVERS          threads that reschedule by handle                                (0)
 *   WITH_NAME_MOVER one more thread reschedules by the name
 *   WITH_LOOKER     a thread asks for the remaining time
 *   WITH_DROP, WITH_REFUSAL  instead of its start the timer may be dropped; its start may be refused
 *   WITH_DUE        it may be due when it is started: then it never enters the queue
 *   ANNOUNCED       the timer was refused when it was created: it says EINVAL, and has no name
 *   WITH_STOP
 *   WITH_SCOPE      the series runs in a scope, and a thread cancels that
 */

#ifndef CANCELLERS
#define CANCELLERS 1
#endif
#ifndef MOVERS
#define MOVERS 0
#endif

mtype = { NONE, SUCCESS, ABORTED, EINVAL, ECANCELED, ETIMEDOUT };
mtype = { WON, RUNNING, DONE };
mtype = { OUTSIDE, ENTERED, CALLED, HANDED_OVER };
mtype = { BEFORE_START, TAKEN, TOO_LATE };

#define STARTED 255
#define REFUSED 254
#define FIRST_DEADLINE 10

/* Mutexes: the process that holds it, or 0. Order: TimerSlots, NameRegistry, PollerTimers. */
byte slots_lock, registry_lock, timers_lock;

/* The slot. */
byte generation;
byte user = 1; /* the timer; 0: nobody, 2: the next one */
byte runner;
bool closed;
bool parked;   /* the waiter waits to be notified */

/* The timer. */
bool flag, stopped, queued, marked, poller_set, posted;
#ifdef ANNOUNCED
byte delay = REFUSED;
#else
byte delay = FIRST_DEADLINE;
#endif
byte deadline, queued_for;
mtype outcome = NONE;
#ifdef NAMED
#ifndef ANNOUNCED
bool linked = true;
#else
bool linked;
#endif
#endif
#ifdef WITH_SCOPE
mtype reg = OUTSIDE;
bool scope_ended;
#endif

/* Ghost state. */
bool alive = true;
bool never_queues;           /* somebody else than start has set flag, or the start was refused */
bool refused;
bool removed;                /* it was in the queue, or was kept out of it */
bool dropped, called_back;
bool captured = true;        /* what the callback holds is not destroyed */
bool called;                 /* by the canceller of the scope, or refused by the scope */
bool scope_over;             /* that canceller has returned */
bool cancel_won;             /* and returned */
bool answered_late;              /* by a handle that does not tick */
byte winners;
byte in_force = FIRST_DEADLINE;

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#define TOUCH assert(alive)
#define HOLDS_NOTHING (slots_lock != _pid && registry_lock != _pid && timers_lock != _pid)

inline lock(mutex) { d_step { mutex == 0 -> mutex = _pid } }
inline unlock(mutex) { d_step { assert(mutex == _pid); mutex = 0 } }

/* TimerTask::set_outcome, by the owner of the completion. */
inline store(how) {
  d_step { TOUCH; assert(outcome == NONE && !queued && !dropped); outcome = how }
}

/* From here on the callback runs, and frees the timer. */
inline post() {
  d_step {
    assert(HOLDS_NOTHING);
    TOUCH;
    assert(outcome != NONE && !posted);
#ifdef NAMED
    assert(!linked);
#endif
#ifdef WITH_SCOPE
    RULE(reg == OUTSIDE);
#endif
    posted = true
  }
}

/* The owner of the completion; sets `taken` if a canceller has decided the outcome before. */
inline leave_name(taken) {
#if defined(NAMED) && !defined(ANNOUNCED)
  lock(registry_lock);
  d_step { TOUCH; taken = taken || !linked; linked = false };
  unlock(registry_lock)
#else
  skip
#endif
}

/* SubTask::leave_scope, by the same: `mine` says whether it posts the timer. */
inline leave_scope(mine) {
#ifdef WITH_SCOPE
  d_step {
    TOUCH;
    mine = reg != CALLED;
    reg = (mine -> OUTSIDE : HANDED_OVER)
  }
#else
  mine = true
#endif
}

/* TimerTask::end_with; needs the locals taken and mine. */
inline end_with(how) {
  leave_name(taken);
  store((taken -> ECANCELED : how));
  leave_scope(mine);
  if
  :: mine -> post()
  :: else
  fi
}

/* ---- Start, refusal, drop ---- */

inline begin_slot() {
  lock(slots_lock);
#ifndef MUT_RUNNER_UNSAID
  runner = _pid;
#endif
  unlock(slots_lock)
}
inline give_up_slot() {
#ifdef MUT_NOTIFIES_BEFORE
  parked = false;
#endif
  lock(slots_lock);
  d_step {
#ifndef MUT_GENERATION_STAYS
    generation++;
#endif
    user = 0;
#ifndef MUT_NOTIFIES_BEFORE
    parked = false
#endif
  };
  unlock(slots_lock)
}

inline start_timer() {
#ifdef MUT_DUE_BY_OLD_DELAY
  d_step { TOUCH; waits = delay; poller_set = true };
  lock(timers_lock);
  d_step { TOUCH; delay = STARTED };
#elif defined(MUT_DELAY_BEFORE_POLLER)
  d_step { TOUCH; waits = delay; delay = STARTED };
  d_step { TOUCH; poller_set = true };
  lock(timers_lock);
#else
  d_step { TOUCH; poller_set = true };
  lock(timers_lock);
#ifndef MUT_FLAG_BEFORE_DELAY
  d_step { TOUCH; waits = delay; delay = STARTED };
#endif
#endif
  d_step { TOUCH; old = flag; flag = true };
#ifdef MUT_FLAG_BEFORE_DELAY
  d_step { TOUCH; waits = delay; delay = STARTED };
#endif
#ifdef WITH_DUE
  choose_due();
#endif
  d_step {
    if
#ifdef MUT_DUE_IGNORES_FLAG
    :: due -> verdict = SUCCESS; removed = true
    :: old && !due -> verdict = ECANCELED; removed = true
#else
    :: old -> verdict = ECANCELED; removed = true
#endif
#ifndef MUT_START_IGNORES_MARK
    :: !old && marked -> verdict = ETIMEDOUT; removed = true
#endif
    :: !(old || marked) && stopped -> verdict = ABORTED; removed = true
#if defined(WITH_DUE) && !defined(MUT_DUE_IGNORES_FLAG)
    :: !(old || marked || stopped) && due -> verdict = SUCCESS; removed = true; assert(waits == in_force)
#endif
    :: else -> queued = true; deadline = waits; queued_for = waits
    fi
  };
  unlock(timers_lock);
#ifdef MUT_START_FORGETS_CANCEL
  verdict = ((verdict == ECANCELED && scope_ended) -> ETIMEDOUT : verdict)
#endif
}

#ifdef WITH_DUE
/* Whether the deadline that start found has passed already. Needs the local due. */
inline choose_due() {
  if
  :: due = true
  :: due = false
  fi
}
#endif

inline close_unstarted(error) {
#ifdef MUT_REFUSAL_IGNORES_FLAG
  d_step { TOUCH; flag = true; never_queues = true; refused = true; verdict = error }
#else
#ifdef WITH_SCOPE
  d_step { TOUCH; poller_set = false };
#endif
  d_step {
    TOUCH;
    verdict = (flag -> ECANCELED : error);
    flag = true;
    never_queues = true;
    refused = true
  }
#endif
}

/* TimerTask::dispatch */
inline start() {
#ifdef ANNOUNCED
  close_unstarted(EINVAL);
#elif defined(WITH_SCOPE)
#ifndef MUT_ENTERS_UNEXPECTED
  d_step { TOUCH; poller_set = true };
#endif
  d_step {
#ifdef MUT_SCOPE_STAYS_OPEN
    reg = ENTERED
#else
    if
    :: scope_ended -> called = true
    :: else -> reg = ENTERED
    fi
#endif
  };
  if
  :: reg == OUTSIDE && called -> close_unstarted(ETIMEDOUT)
  :: else
  fi;
#endif
  if
#ifdef WITH_REFUSAL
  :: close_unstarted(EINVAL)
#endif
#if defined(WITH_SCOPE) || defined(ANNOUNCED)
  :: verdict != NONE
#endif
  :: verdict == NONE -> start_timer()
  fi;
  if
#ifdef MUT_DUE_STAYS_IN_SCOPE
  :: verdict == SUCCESS -> leave_name(taken); store((taken -> ECANCELED : SUCCESS)); post()
  :: verdict != NONE && verdict != SUCCESS -> end_with(verdict)
#else
  :: verdict != NONE -> end_with(verdict)
#endif
  :: else
  fi
}

/* The destructor of what never started. */
inline drop() {
  dropped = true;
#ifndef MUT_DROP_KEEPS_NAME
  leave_name(taken);
#endif
#ifdef MUT_DROP_FREES_FIRST
  captured = false;
  alive = false;
  give_up_slot()
#else
#ifdef MUT_DROP_GIVES_UP_FIRST
  give_up_slot();
  captured = false;
#else
  begin_slot();
  captured = false;
  give_up_slot();
#endif
#ifdef MUT_DROP_KEEPS_NAME
  leave_name(taken);
#endif
  alive = false
#endif
}

proctype Owner() {
  bool old, taken, mine;
#ifdef WITH_DUE
  bool due;
#endif
  byte waits;
  mtype verdict = NONE;
#ifdef WITH_DROP
  if
  :: start()
  :: drop()
  fi
#else
  start()
#endif
}

/* ---- Expiry and stop ---- */

/* What is queued may be due at any moment; after the stop it is taken out. */
proctype Poller() {
  bool taken, mine;
  mtype verdict = NONE;
  do
  :: d_step { queued && timers_lock == 0 -> assert(!scope_over); timers_lock = _pid };
     if
#ifndef MUT_SETTLE_FORGOTTEN
     :: !stopped && deadline > queued_for -> queued_for = deadline; unlock(timers_lock)
     :: stopped || deadline <= queued_for ->
#else
     :: true ->
#endif
        d_step {
          verdict = (stopped -> ABORTED : SUCCESS);
          assert(stopped || queued_for == in_force);
          TOUCH;
          queued = false;
          removed = true
        };
        unlock(timers_lock);
#ifdef MUT_EXPIRY_IGNORES_HAND_OVER
        leave_name(taken);
        store((taken -> ECANCELED : verdict));
        leave_scope(mine);
        post()
#else
        end_with(verdict)
#endif
     fi
  :: outcome != NONE || dropped -> break
  od
}

proctype Stopper() {
  lock(timers_lock);
  stopped = true;
  unlock(timers_lock)
}

/* ---- Cancel ---- */

/* PollerTimers::cancel(). The caller knows the timer to be alive; needs the locals old and how. */
inline cancel_timer() {
  d_step {
    TOUCH;
    old = flag;
    flag = true;
    if
    :: !old -> never_queues = true; how = BEFORE_START
    :: else
    fi
  };
  if
  :: !old
#if (defined(WITH_REFUSAL) || defined(WITH_SCOPE) || defined(ANNOUNCED)) && !defined(MUT_REFUSED_HAS_POLLER)
  :: old && !poller_set -> assert(refused); how = TOO_LATE
  :: old && poller_set ->
#else
  :: old ->
#endif
     assert(poller_set);
     lock(timers_lock);
     d_step {
       TOUCH;
       if
       :: queued -> queued = false; removed = true; how = TAKEN
       :: else -> how = TOO_LATE
       fi
     };
     unlock(timers_lock)
  fi
}

/* TimerTask::cancel(), under the TimerSlots lock; needs the locals of HandleCanceller. */
inline cancel_task() {
#if defined(ANNOUNCED) && !defined(MUT_REFUSED_IS_WON)
  d_step { TOUCH; assert(delay == REFUSED); answer = RUNNING }
#else
#if defined(NAMED) && !defined(MUT_HANDLE_IGNORES_NAME)
  lock(registry_lock);
  d_step { TOUCH; taken = !linked; linked = false };
  unlock(registry_lock);
#elif defined(NAMED)
  lock(registry_lock);
  linked = false;
  unlock(registry_lock);
#endif
  if
#ifdef NAMED
  :: taken -> answer = RUNNING
#endif
  :: !taken ->
     cancel_timer();
     d_step {
       owns = how == TAKEN;
#if defined(NAMED) || defined(MUT_TOO_LATE_IS_WON)
       answer = WON;
#else
       answer = (how == TOO_LATE -> RUNNING : WON);
#endif
       winners = winners + (answer == WON)
     }
  fi;
  if
  :: owns -> store(ECANCELED); leave_scope(owns)
  :: else
  fi
#endif
}

proctype HandleCanceller(bool waits) {
  bool taken, old, owns;
  mtype how, answer;
  lock(slots_lock);
  if
  :: generation != 0 -> d_step { answer = DONE; assert(called_back || dropped) }
  :: else ->
     assert(user == 1);
#ifdef MUT_LETS_GO_OF_G
     unlock(slots_lock);
#endif
     if
#ifndef MUT_CANCELS_TWICE
     :: runner || closed -> answer = RUNNING
     :: !runner && !closed -> closed = true; cancel_task()
#else
     :: runner -> answer = RUNNING
     :: !runner -> cancel_task()
#endif
     fi
#ifdef MUT_LETS_GO_OF_G
     ; lock(slots_lock)
#endif
  fi;
  d_step {
    assert(!(answered_late && answer == WON));
    answered_late = answered_late || answer == RUNNING
  };
  unlock(slots_lock);
  if
  :: owns -> post()
  :: else
  fi;
  d_step { cancel_won = cancel_won || answer == WON; taken = false; old = false; owns = false; how = 0 };
  if
  :: waits ->
     lock(slots_lock);
     do
     :: generation != 0 -> break
     :: else ->
        assert(user == 1);
#ifdef MUT_RUNNER_OF_ANY_THREAD
        assert(!runner);
#endif
        d_step { parked = true; assert(slots_lock == _pid); slots_lock = 0 };
        !parked;
        lock(slots_lock)
     od;
     unlock(slots_lock);
     d_step {
       assert(called_back || dropped);
#ifdef NAMED
       assert(!linked);
#endif
       assert(!captured)
     }
  :: else
  fi
}

#ifdef NAMED
proctype NameCanceller() {
  bool taken, old, mine;
  mtype how;
  lock(registry_lock);
  if
  :: linked ->
     d_step { TOUCH; linked = false; winners++ };
     cancel_timer();
     if
#ifdef MUT_CANCELLER_STAYS_IN_SCOPE
     :: how == TAKEN -> store(ECANCELED); mine = true
#else
     :: how == TAKEN -> store(ECANCELED); leave_scope(mine)
#endif
     :: else
     fi;
     cancel_won = true
  :: else
  fi;
  unlock(registry_lock);
  if
  :: mine -> post()
  :: else
  fi
}
#endif

#ifdef WITH_SCOPE
/* CancelScope::cancel, TimerTask::on_cancel, PollerTimers::end_for_scope. */
proctype ScopeCanceller() {
  bool taken, owner, mine;
  scope_ended = true;
  d_step {
    if
    :: reg == ENTERED -> TOUCH; reg = CALLED; called = true; mine = true
    :: else
    fi
  };
  if
  :: mine ->
     assert(poller_set);
     lock(timers_lock);
     d_step {
       TOUCH;
       marked = true;
       owner = queued;
       removed = removed || queued;
       queued = false
     };
     unlock(timers_lock);
     if
     :: owner ->
#ifndef MUT_SCOPE_KEEPS_NAME
        leave_name(taken);
#endif
#ifndef MUT_SCOPE_IGNORES_CANCEL
        store((taken -> ECANCELED : ETIMEDOUT));
#else
        store(ETIMEDOUT);
#endif
        leave_scope(mine);
        RULE(!mine)
     :: else
     fi;
     d_step { TOUCH; mine = reg == HANDED_OVER; reg = OUTSIDE };
     if
     :: mine -> post()
     :: else
     fi
  :: else
  fi;
  scope_over = true
}
#endif

#include "moves.pml"

/* ---- The callback, and whose slot it is next ---- */

proctype Handler() {
  if
  :: posted ->
#ifdef MUT_GIVES_UP_BEFORE_CALLBACK
     give_up_slot();
#else
     begin_slot();
#endif
     /* Inside the callback: cancel_and_wait() finds itself there, WFTimerCancel::kWouldDeadlock. */
#ifndef MUT_GIVES_UP_BEFORE_CALLBACK
     lock(slots_lock);
     d_step { assert(generation == 0 && user == 1); assert(runner == _pid) };
     unlock(slots_lock);
#endif
     called_back = true;
     captured = false;
#ifdef MUT_FREED_BEFORE_SLOT
     alive = false;
#endif
#ifndef MUT_GIVES_UP_BEFORE_CALLBACK
     give_up_slot();
#endif
     alive = false
  :: dropped && !alive
  fi
}

proctype NextUser() {
  user == 0;
  lock(slots_lock);
  d_step { user = 2; runner = 0; closed = false };
  unlock(slots_lock)
}

init {
  atomic {
    run Owner();
    run Poller();
    run Handler();
    run NextUser();
    run HandleCanceller(true);
#if CANCELLERS > 1
    run HandleCanceller(false);
#endif
#ifdef NAMED
    run NameCanceller();
#endif
#ifdef WITH_STOP
    run Stopper();
#endif
#ifdef WITH_SCOPE
    run ScopeCanceller();
#endif
#if MOVERS > 0
    run Mover(3, 13);
#endif
#if MOVERS > 1
    run Mover(2, 12);
#endif
#ifdef WITH_NAME_MOVER
    run NameMover(1, 11);
#endif
#ifdef WITH_LOOKER
    run Looker();
#endif
  };
  (_nr_pr == 1);
  d_step {
    assert(dropped || called_back);
    assert(!(dropped && called_back));
    assert(!alive && !captured && !queued && generation == 1 && user == 2);
    assert(dropped == (outcome == NONE));
    assert(winners <= 1);
    assert(winners == 0 || dropped || outcome == ECANCELED);
    assert(outcome != ECANCELED || winners == 1);
    assert(outcome != ETIMEDOUT || called);
#ifdef WITH_SCOPE
    assert(reg == OUTSIDE);
#endif
#ifdef ANNOUNCED
    assert(dropped || outcome == EINVAL);
    assert(winners == 0)
#endif
  }
}

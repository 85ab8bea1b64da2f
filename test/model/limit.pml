/*
 * A computation that may end before its function has: the end of the function, the time limit, the
 * stop and the canceller of the scope (TimeLimit).
 *
 * The names are those of the code:
 *   timers_lock  the PollerTimers lock, which guards queued
 *   claimed      the thread that exchanges it first decides the outcome
 *   met          TimeLimit::arrived_. Of a timer that the poller has removed: the second thread to
 *                exchange it owns the completion
 *   flag         on which the start of the timer meets the canceller that takes it
 *   users        the task's completion, and its computation: the last of them deletes it
 *   reg          the registration of the series in its scope (CancelRegistration::state_)
 *   scope_ended  the scope has a reason. Its mutex is a leaf and guards nothing else but reg, so each
 *                use of it is one step (scope.pml)
 *
 * One task. Its timer may be due at any moment after the start, or never. Every other access to shared
 * data is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   WITH_STOP     the poller may end the timer because it stops
 *   WITH_SCOPE    the series runs in a scope, which one thread cancels; the timer's start may be refused
 *   NO_LIMIT      there is no timer (WITH_SCOPE)
 *   BORROWS       a coroutine waits behind the task, which keeps its place until the function has
 *                 returned (ComputeTask::end_and_next)
 *   MUT_x         breaks one rule: see the file `mutations`
 */

#define NOBODY 0
#define UNDECIDED 0
#define SUCCEEDED 1
#define TIMED_OUT 2
#define CANCELLED 3
#define REFUSED 4

byte timers_lock = NOBODY;
bool queued, removed, claimed, met;
bool begun;  /* the computation has begun: together with `claimed` this is TimeLimit::stage_ */
#ifdef BORROWS
bool stays;
#endif
#ifdef WITH_SCOPE
mtype = { OUTSIDE, ENTERED, CALLED, HANDED_OVER };
mtype reg = OUTSIDE;
bool flag, scope_ended;
#endif
byte users = 2, outcome = UNDECIDED;

/* Ghosts. */
bool alive = true, function_runs, function_ran;
bool gone_on;  /* what follows in the series was dispatched */
byte callbacks;

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#define TOUCH assert(alive)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

/* What follows the task is dispatched: a coroutine that goes on has its variables no longer. */
inline go_on() {
  assert(!gone_on && callbacks == 1);
#ifdef BORROWS
  assert(!function_runs);
#endif
  gone_on = true
}

inline unref() {
  d_step {
    TOUCH;
    users--;
    if
    :: users == 0 ->
       assert(!function_runs && !queued);
#if defined(BORROWS) && !defined(MUT_LAST_USER_ONLY_DELETES)
       if
       :: stays -> go_on()
       :: else
       fi;
#endif
       alive = false
    :: else
    fi
  }
}

/* SubTask::leave_scope: sets `mine` if the caller completes the task. */
inline leave_scope() {
#ifdef WITH_SCOPE
  d_step { TOUCH; mine = reg != CALLED; reg = (mine -> OUTSIDE : HANDED_OVER) }
#else
  mine = true
#endif
}

inline complete_task() {
  d_step {
    TOUCH;
    assert(callbacks == 0 && outcome != UNDECIDED);
#ifdef WITH_SCOPE
    RULE(reg == OUTSIDE);
#endif
    callbacks++
  };
#if defined(BORROWS) && !defined(MUT_LEAVES_A_FUNCTION)
  d_step {
    TOUCH;
    stays = begun;
    if
    :: !stays -> go_on()
    :: else
    fi
  };
#else
  d_step { TOUCH; go_on() };
#endif
#ifdef MUT_COMPLETION_DELETES
  d_step { TOUCH; alive = false }
#else
  unref()
#endif
}

#define EXCHANGE(flag, first) d_step { TOUCH; first = !flag; flag = true }

/* TimeLimit::take_timer, after the start of the timer: `owns` the completion. */
inline take_started() {
  LOCK(timers_lock);
  d_step { TOUCH; owns = queued; queued = false };
  UNLOCK(timers_lock);
  if
  :: owns
  :: else ->
     EXCHANGE(met, first);
     owns = !first
  fi
}

/* The computing thread: ComputeTask::dispatch has started the timer before. */
proctype Computation() {
  bool first, owns, mine;
  /* TimeLimit::begin */
  d_step {
    TOUCH;
    first = !claimed;
    begun = first
  };
  if
  :: first ->
     d_step { TOUCH; function_runs = true };
     d_step { TOUCH; function_runs = false; function_ran = true }
  :: else
  fi;
  /* ComputeTask::computed */
#ifdef MUT_CLAIM_NOT_ATOMIC
  d_step { TOUCH; first = !claimed };
  d_step { TOUCH; claimed = true };
#else
  EXCHANGE(claimed, first);
#endif
  owns = false;
  if
  :: first ->
     d_step { TOUCH; assert(outcome == UNDECIDED); outcome = SUCCEEDED };
#ifdef NO_LIMIT
     owns = true
#elif defined(MUT_END_DOES_NOT_MEET)
     LOCK(timers_lock);
     d_step { TOUCH; owns = queued; queued = false };
     UNLOCK(timers_lock)
#else
     take_started()
#endif
  :: else
  fi;
  if
  :: owns -> leave_scope()
  :: else
  fi;
  if
  :: owns && mine ->
     /* Nobody else uses the TimeLimit, nor the task. */
     unref();
     complete_task()
  :: else ->
     unref()
  fi
}

/* PollerTimers::end_due, TimeLimit::left_queue. */
proctype Poller() {
  bool first, second, popped, stops, mine;
#ifdef WITH_STOP
  if
  :: stops = true
  :: stops = false
  fi;
#endif
  LOCK(timers_lock);
  d_step { popped = queued; queued = false };
  UNLOCK(timers_lock);
  if
  :: !popped -> goto done
  :: else
  fi;
  first = false;
#ifndef MUT_STOP_CLAIMS
  if
  :: !stops ->
#endif
     EXCHANGE(claimed, first);
     if
     :: first -> d_step { TOUCH; assert(outcome == UNDECIDED); outcome = TIMED_OUT; assert(!stops) }
     :: else
     fi
#ifndef MUT_STOP_CLAIMS
  :: else
  fi
#endif
  ;
  if
  :: first
  :: else ->
#ifdef MUT_TIMEOUT_COMPLETES_OTHERS
     second = false;
#else
     EXCHANGE(met, second);
#endif
     first = !second
  fi;
  if
#ifdef MUT_POPPED_STAYS_IN_SCOPE
  :: first -> mine = true
#else
  :: first -> leave_scope()
#endif
  :: else
  fi;
  if
  :: mine -> complete_task()
  :: else
  fi;
done:
  skip
}

#ifdef WITH_SCOPE
/* ComputeTask::dispatch, start_limit. Without the computation the completion deletes the task. */
proctype Starter() {
  bool first, old, refused, mine;
  d_step { refused = scope_ended; reg = (scope_ended -> OUTSIDE : ENTERED) };
  if
  :: refused -> outcome = CANCELLED; unref(); complete_task(); goto done
  :: else
  fi;
#ifndef NO_LIMIT
  if
  :: refused = true
  :: refused = false
  fi;
  LOCK(timers_lock);
  d_step { TOUCH; old = flag; flag = true; queued = !old && !refused };
  UNLOCK(timers_lock);
  if
  :: old || refused ->
     EXCHANGE(claimed, first);
     if
     :: first -> d_step { assert(!old && outcome == UNDECIDED); outcome = REFUSED }
     :: else
     fi;
     unref();
#ifdef MUT_REFUSAL_IGNORES_HAND_OVER
     leave_scope();
     complete_task()
#else
     leave_scope();
     if
     :: mine -> complete_task()
     :: else
     fi
#endif
  :: else -> run Computation()
  fi;
#else
  run Computation();
#endif
done:
  skip
}

/* CancelScope::cancel, ComputeTask::on_cancel. */
proctype ScopeCanceller() {
  bool first, old, owns, mine, time_is_over;
  if
  :: time_is_over = true  /* the reason is ETIMEDOUT */
  :: time_is_over = false
  fi;
  scope_ended = true;
  d_step {
    if
    :: reg == ENTERED -> TOUCH; reg = CALLED; mine = true
    :: else
    fi
  };
  if
  :: mine ->
     if
#ifndef MUT_ENDS_WHAT_HAS_BEGUN
     :: !time_is_over -> d_step { TOUCH; first = !claimed && !begun; claimed = claimed || first }
#else
     :: !time_is_over -> EXCHANGE(claimed, first)
#endif
     :: else -> EXCHANGE(claimed, first)
     fi;
     if
     :: first ->
        d_step { TOUCH; assert(outcome == UNDECIDED); outcome = CANCELLED };
        assert(time_is_over || !begun);
#ifdef NO_LIMIT
        owns = true
#else
        d_step { TOUCH; old = flag; flag = true };
        if
        :: old -> take_started()
        :: else ->
#ifdef MUT_CANCELLER_TAKES_UNSTARTED
           owns = true
#else
           skip
#endif
        fi
#endif
     :: else
     fi;
     if
     :: owns -> leave_scope(); RULE(!mine)
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
#ifdef WITH_SCOPE
    run Starter();
    run ScopeCanceller();
#else
    queued = true;
    run Computation();
#endif
    if
    :: run Poller()
    :: skip
    fi
  };
  (_nr_pr == 1);
  d_step {
    assert(callbacks == 1 && gone_on);
    assert(!alive && !queued);
#ifdef WITH_SCOPE
    assert(reg == OUTSIDE);
#endif
    assert(outcome != SUCCEEDED || function_ran);
  }
}

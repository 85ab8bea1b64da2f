/*
 * The time limit of a computation (TimeLimit): the end of the function, the timeout and the stop.
 *
 * The names are those of docs/concurrency.md and of the code:
 *   P         the poller's mutex; queued is guarded by it
 *   claimed   who exchanges it first decides the outcome
 *   met       who comes second owns the completion of a timer that was popped by the poller
 *   I         the mutex of the series' scope; entered and interrupted are guarded by it (rule 9)
 *   flag      start of the timer, or the interrupter that takes it
 *   users     the task's completion, and its computation: the last of them deletes it
 *
 * One task. Its timer may be due at any moment after the start, or never. Every access to shared data
 * is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   WITH_STOP     the poller may end the timer because it stops
 *   WITH_INTERRUPT  one thread interrupts the series; the timer's start may be refused
 *   MUT_x         breaks one rule: see the file `mutations`
 */

#define NOBODY 0
#define UNDECIDED 0
#define SUCCEEDED 1
#define TIMED_OUT 2
#define CUT 3
#define REFUSED 4

byte P = NOBODY;
bool queued, removed, claimed, met;
#ifdef WITH_INTERRUPT
byte I = NOBODY;
bool flag, entered, interrupted;
#endif
byte users = 2, outcome = UNDECIDED;

/* Ghosts. */
bool alive = true, function_runs, function_ran;
byte callbacks;

#define TOUCH assert(alive)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

inline unref() {
  d_step {
    TOUCH;
    users--;
    if
    :: users == 0 -> assert(!function_runs && !queued); alive = false
    :: else
    fi
  }
}

inline leave_scope() {
#ifdef WITH_INTERRUPT
  LOCK(I);
  d_step { TOUCH; entered = false };
  UNLOCK(I)
#else
  skip
#endif
}

inline complete_task() {
  d_step {
    TOUCH;
    assert(callbacks == 0 && outcome != UNDECIDED);
#ifdef WITH_INTERRUPT
    assert(!entered);
#endif
    callbacks++
  };
#ifdef MUT_COMPLETION_DELETES
  d_step { TOUCH; alive = false }
#else
  unref()
#endif
}

#define EXCHANGE(flag, first) d_step { TOUCH; first = !flag; flag = true }

/* The computing thread: ComputeTask::dispatch has started the timer before. */
proctype Computation() {
  bool first, owns, second;
  d_step { TOUCH; first = !claimed };
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
     /* TimeLimit::take_timer */
     LOCK(P);
     d_step { TOUCH; owns = queued; queued = false };
     UNLOCK(P);
     if
     :: owns
     :: else ->
#ifdef MUT_END_DOES_NOT_MEET
        skip
#else
        EXCHANGE(met, second);
        owns = !second
#endif
     fi
  :: else
  fi;
  if
  :: owns ->
     leave_scope();
     unref();
     complete_task()
  :: else ->
     unref()
  fi
}

/* Poller::expire or drain, TimeLimit::left_queue. */
proctype Poller() {
  bool first, second, popped, stops;
#ifdef WITH_STOP
  if
  :: stops = true
  :: stops = false
  fi;
#endif
  LOCK(P);
  d_step { popped = queued; queued = false };
  UNLOCK(P);
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
  :: first -> leave_scope(); complete_task()
  :: else ->
#ifdef MUT_TIMEOUT_COMPLETES_OTHERS
     second = false;
#else
     EXCHANGE(met, second);
#endif
     if
     :: !second ->
#ifndef MUT_POPPED_STAYS_IN_SCOPE
        leave_scope();
#endif
        complete_task()
     :: else
     fi
  fi;
done:
  skip
}

#ifdef WITH_INTERRUPT
/* ComputeTask::dispatch, start_limit. Without the computation the completion deletes the task. */
inline complete_alone() {
  leave_scope();
  unref();
  complete_task()
}

proctype Starter() {
  bool first, old, refused;
  LOCK(I);
  d_step { refused = interrupted; entered = !interrupted };
  UNLOCK(I);
  if
  :: refused -> outcome = CUT; complete_alone(); goto done
  :: else
  fi;
  if
  :: refused = true
  :: refused = false
  fi;
  LOCK(P);
  d_step { TOUCH; old = flag; flag = true; queued = !old && !refused };
  UNLOCK(P);
  if
  :: old || refused ->
     EXCHANGE(claimed, first);
     if
     :: first -> d_step { assert(!old && outcome == UNDECIDED); outcome = REFUSED }
     :: else
     fi;
     complete_alone()
  :: else -> run Computation()
  fi;
done:
  skip
}

/* InterruptScope::interrupt, ComputeTask::interrupt. */
proctype Interrupter() {
  bool first, old, owns;
  LOCK(I);
  interrupted = true;
  if
  :: entered ->
     entered = false;
     EXCHANGE(claimed, first);
     if
     :: first ->
        d_step { TOUCH; assert(outcome == UNDECIDED); outcome = CUT };
        d_step { TOUCH; old = flag; flag = true };
        if
        :: old ->
           LOCK(P);
           d_step { TOUCH; owns = queued; queued = false };
           UNLOCK(P);
           if
           :: owns
           :: else ->
              EXCHANGE(met, first);
              owns = !first
           fi
        :: else ->
#ifdef MUT_CUT_COMPLETES_UNSTARTED
           owns = true
#else
           skip
#endif
        fi
     :: else
     fi
  :: else
  fi;
  UNLOCK(I);
  if
  :: owns -> complete_task()
  :: else
  fi
}
#endif

init {
  atomic {
#ifdef WITH_INTERRUPT
    run Starter();
    run Interrupter();
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
    assert(callbacks == 1);
    assert(!alive && !queued);
    assert(outcome != SUCCEEDED || function_ran);
  }
}

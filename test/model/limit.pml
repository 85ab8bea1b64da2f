/*
 * The time limit of a computation (TimeLimit): the end of the function, the timeout and the stop.
 *
 * The names are those of docs/concurrency.md and of the code:
 *   P         the poller's mutex; queued is guarded by it
 *   claimed   who exchanges it first decides the outcome
 *   met       who comes second owns the completion of a timer that was popped by the poller
 *   users     the task's completion, and its computation: the last of them deletes it
 *
 * One task. Its timer may be due at any moment after the start, or never. Every access to shared data
 * is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   WITH_STOP     the poller may end the timer because it stops
 *   MUT_x         breaks one rule: see the file `mutations`
 */

#define NOBODY 0
#define UNDECIDED 0
#define SUCCEEDED 1
#define TIMED_OUT 2

byte P = NOBODY;
bool queued, removed, claimed, met;
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

inline complete_task() {
  d_step {
    TOUCH;
    assert(callbacks == 0 && outcome != UNDECIDED);
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
  :: first -> complete_task()
  :: else ->
#ifdef MUT_TIMEOUT_COMPLETES_OTHERS
     second = false;
#else
     EXCHANGE(met, second);
#endif
     if
     :: !second -> complete_task()
     :: else
     fi
  fi;
done:
  skip
}

init {
  atomic {
    queued = true;
    run Computation();
    if
    :: run Poller()
    :: skip
    fi
  };
  (_nr_pr == 1);
  d_step {
    assert(callbacks == 1);
    assert(!alive && !queued);
    assert(outcome == TIMED_OUT || function_ran);
  }
}

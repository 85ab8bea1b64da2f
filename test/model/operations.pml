/*
 * What the processes of timer.pml do to a timer: create, start, settle, complete, dismiss. The state
 * and the parameters are declared there.
 */

/* Any access to a node: its memory is not freed. */
#define TOUCH(t) assert(alive[t])

inline lock(mutex) {
  d_step { mutex == NOBODY -> mutex = _pid }
}

inline lock_B() {
  d_step { registry_lock == NOBODY -> RULE(!HOLDS_TIMERS_LOCK); registry_lock = _pid }
}

inline unlock(mutex) {
  assert(mutex == _pid);
  mutex = NOBODY
}

/* Hands the finished task to the handlers. No lock is held. */
inline complete(t, how) {
  d_step {
    RULE(!HOLDS_TIMERS_LOCK && registry_lock != _pid);
    TOUCH(t);
    assert(outcome[t] == NONE);
    outcome[t] = how;
    posted[t] = true;
    in_hand++
  }
}

inline unlink(t) {
  d_step {
    RULE(registry_lock == _pid);
    TOUCH(t);
    assert(linked[t]);
    linked[t] = false;
    names_list??eval(t)
  }
}

/* Within a d_step. What a freed node held is cleared: nobody can tell, and fewer states remain. */
inline release_memory(t) {
  TOUCH(t);
  assert(!linked[t]);
  assert(!queued[t]);
  if
  :: outcome[t] == ECANCELED || (dismissed[t] && counted[t]) -> uncounted++
  :: else
  fi;
  alive[t] = false;
  flag[t] = false;
  removed[t] = false;
  created_at[t] = 0;
  outcome[t] = NONE;
  posted[t] = false;
  counted[t] = false
}

inline create(t) {
  alive[t] = true;
#ifdef MUT_NUMBER_OUTSIDE_B
  d_step { created_at[t] = creation_counter; creation_counter++ };
#endif
  SECTION {
    lock_B();
    d_step {
      RULE(registry_lock == _pid);
#ifndef MUT_NUMBER_OUTSIDE_B
      created_at[t] = creation_counter;
      creation_counter++;
#endif
      linked[t] = true;
      names_list!t
    };
    unlock(registry_lock)
  }
}

/*
 * The end of a timer that its caller took out of the queue (or kept out of it): whoever unlinks it
 * decides. Needs the locals was_linked and verdict.
 */
inline settle(t, verdict_if_linked) {
#ifdef MUT_SETTLE_COMPLETES_FIRST
  complete(t, verdict_if_linked);
#endif
  SECTION {
#ifndef MUT_SETTLE_WITHOUT_B
    lock_B();
#endif
    d_step { RULE(registry_lock == _pid); TOUCH(t); was_linked = linked[t] };
    if
    :: was_linked -> unlink(t); verdict = verdict_if_linked
#ifdef MUT_SETTLE_IGNORES_LINKED
    :: else -> verdict = verdict_if_linked
#else
    :: else -> verdict = ECANCELED
#endif
    fi;
#ifndef MUT_SETTLE_WITHOUT_B
    unlock(registry_lock)
#endif
  };
#ifndef MUT_SETTLE_COMPLETES_FIRST
  complete(t, verdict)
#endif
}

/* Parts of start, under the PollerTimers lock. */
inline enter_queue(t) {
  verdict = SUCCESS;
  d_step {
    RULE(timers_lock_of(t) == _pid);
    RULE(!stopped[QUEUE_OF(t)]);
    TOUCH(t);
    assert(!queued[t] && !removed[t]);
    queued[t] = true
  }
}

/* Its time has come already: it is not queued, and start goes on as expiry does. */
inline be_due(t) {
  verdict = DUE;
  d_step {
    RULE(timers_lock_of(t) == _pid);
    assert(!stopped[QUEUE_OF(t)]);
    TOUCH(t);
    assert(!queued[t] && !removed[t]);
#ifndef MUT_DUE_NOT_REMOVED
    removed[t] = true
#endif
  }
}

/* Needs the locals old, was_linked and verdict. */
inline start(t) {
#ifdef MUT_FLAG_OUTSIDE_P
  d_step { TOUCH(t); dispatched[t] = true; old = flag[t]; flag[t] = true };
#endif
  SECTION {
    lock(timers_lock_of(t));
#ifndef MUT_FLAG_OUTSIDE_P
    d_step { RULE(timers_lock_of(t) == _pid); TOUCH(t); dispatched[t] = true; old = flag[t]; flag[t] = true };
#endif
#ifdef MUT_START_IGNORES_FLAG
    old = false;
#endif
#ifdef MUT_INSERT_IN_SECOND_HOLD
    unlock(timers_lock_of(t));
  };
  SECTION {
    lock(timers_lock_of(t));
#endif
    if
    :: old -> verdict = ECANCELED
#ifdef MUT_DUE_IGNORES_STOPPED
    :: !old && stopped[QUEUE_OF(t)] -> be_due(t)
#endif
#ifndef MUT_START_IGNORES_STOPPED
    :: !old && stopped[QUEUE_OF(t)] ->
       verdict = ABORTED;
#ifndef MUT_START_STOPPED_NOT_REMOVED
       d_step { TOUCH(t); removed[t] = true }
#endif
#endif
    :: else ->
#ifdef WITH_DUE
       if
       :: true -> be_due(t)
       :: true -> enter_queue(t)
       fi
#else
       enter_queue(t)
#endif
    fi;
    unlock(timers_lock_of(t))
  };
  if
  :: verdict == ECANCELED -> complete(t, ECANCELED)
#ifdef WITH_DUE
#ifdef MUT_DUE_KEEPS_LINK
  :: verdict == DUE -> complete(t, SUCCESS)
#else
  :: verdict == DUE -> settle(t, SUCCESS)
#endif
#endif
#ifdef MUT_START_STOPPED_KEEPS_LINK
  :: verdict == ABORTED -> complete(t, ABORTED)
#else
  :: verdict == ABORTED -> settle(t, ABORTED)
#endif
#ifdef MUT_START_TOUCHES_AFTER_P
  :: verdict == SUCCESS -> TOUCH(t)
#else
  :: verdict == SUCCESS
#endif
  fi
}

/* The destructor of a timer that was never started. Needs the local was_linked. */
inline dismiss(t) {
  dismissed[t] = true;
#ifndef MUT_DISMISS_KEEPS_LINK
  SECTION {
#ifndef MUT_DISMISS_WITHOUT_B
    lock_B();
#endif
    d_step { RULE(registry_lock == _pid); TOUCH(t); was_linked = linked[t] };
    if
    :: was_linked -> unlink(t)
    :: else
    fi;
#ifndef MUT_DISMISS_WITHOUT_B
    unlock(registry_lock)
#endif
  };
#endif
  d_step { release_memory(t) }
}

/* Takes t out of the queue into the batch, under the PollerTimers lock. */
inline pop(t) {
  RULE(timers_lock_of(t) == _pid);
  TOUCH(t);
  queued[t] = false;
#ifndef MUT_POP_NOT_REMOVED
  removed[t] = true;
#endif
  batch = batch | BIT_OF(t)
}

/* Takes any timer out of a set that is not empty. */
inline take_any(set, member) {
  atomic {
    member = 0;
    do
    :: set & BIT_OF(member) -> break
    :: set >> (member + 1) -> member++
    od;
    set = set & ~BIT_OF(member)
  }
}

/* Settles every timer of the batch. Needs the locals of settle, batch and next. */
inline settle_batch(verdict_if_linked) {
  do
  :: batch == 0 -> break
  :: else ->
     take_any(batch, next);
     settle(next, verdict_if_linked);
     d_step { next = 0; was_linked = false; verdict = NONE }
  od
}

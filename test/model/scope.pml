/*
 * Scopes: a thread that cancels a scope ends the tasks that wait in it early (class CancelScope).
 *
 *   scope_lock[s]  the CancelScope lock of scope s; 0 is the outer scope, 1 the one nested in it
 *   reason[s]      atomic, written under scope_lock[s]: NONE while the scope is open, then why it
 *                  ended; with WITH_TIMERS, reason[FOR_TIMERS] is the outer scope's reason for timers
 *   slot[s]        atomic, one word with closed[s] (and closed[FOR_TIMERS]): the number of the registration in
 *                  the slot of scope s, plus one; 0 if it is empty
 *   closed[s]      set under scope_lock[s] after reason[s]: nothing enters the slot any more
 *   reg[i]         guarded by the mutex of its scope: the registration of series i; OUTSIDE in the slot
 *   place_lock     the mutex of the place where tasks wait (a queue, a table of names, a line)
 *   placed[i]      guarded by place_lock: the task of series i can be found at the place
 *
 * Series 0 and, unless NESTED, series 1 run directly in the outer scope. With NESTED, series 1 runs
 * in the nested scope. That scope belongs to a scope task, which is registered in the outer scope as
 * number 2: a thread that cancels the outer scope cancels the nested one, too. The scope task completes
 * when series 1 has ended, and its scope may be freed then. With WITH_TIMERS, one more thread ends only
 * the timers of the outer scope (cancel_timers()). These are the tasks of series 0, or with NESTED the
 * scope task instead.
 *
 * Each series runs one task after the other, TASKS of them. A task enters the scope and goes to the
 * place. If its start does not fail, it is ended there by the process Finisher (an expiry, a message, a
 * reply) or by a canceller. A Finisher leaves the scope while it holds place_lock, as a thread does
 * that cancels timers by name, or after it has released place_lock. The order of locks is place_lock,
 * then scope_lock[0] or scope_lock[1].
 *
 * A task that enters takes the slot if it is empty, in one compare-and-swap. It goes to the list if it
 * has seen another there or has lost the compare-and-swap; the model lets it go there at any time.
 *
 * What happens under scope_lock[s] between two accesses to the slot is one step: no other lock is taken
 * there, and what scope_lock[s] guards is touched nowhere else. Only a mutation holds scope_lock[s] while
 * it calls. Every other access to shared data is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   TASKS           how many tasks each series runs                                  (2)
 *   TWO_CANCELLERS  a second thread cancels the outer scope, for another reason
 *   NESTED          series 1 runs in the nested scope; one more thread cancels that scope
 *   WITH_TIMERS     see above
 *   PATIENT         only cancellers end tasks
 *   MUT_x           breaks one rule: see the file `mutations`
 */

#ifndef TASKS
#define TASKS 2
#endif
#define SERIES 2

mtype = { NONE, ENOMEM, ECANCELED, ETIMEDOUT };
mtype = { OUTSIDE, ENTERED, CALLED, HANDED };

byte place_lock;
byte scope_lock[2];
mtype reason[3] = NONE;
byte slot[2];
bool closed[3];
mtype reg[3] = OUTSIDE;
bool placed[SERIES];

/* Ghost state. */
bool alive[SERIES];          /* the task that series i runs now exists */
byte completed[SERIES];      /* how many of its tasks have completed */
bool nested_alive = true;    /* the scope task and its scope exist */
byte users_of_nested;        /* cancellers that hold a reference to the nested scope */
byte won;                    /* cancels of the outer scope that report that they ended it */
bool over;                   /* a canceller of the outer scope has returned */
bool looked[3];              /* the canceller that gave reason[k] has begun to look for registrations */

inline lock(mutex) { d_step { mutex == 0 -> mutex = _pid } }
#define UNDER(s) scope_lock[s] == 0
inline unlock(mutex) { assert(mutex == _pid); mutex = 0 }

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#ifdef NESTED
#define SCOPE_OF(i) (i)
#else
#define SCOPE_OF(i) 0
#endif
#ifdef WITH_TIMERS
#define FOR_TIMERS 2
#endif
#if defined(WITH_TIMERS) && !defined(NESTED)
#define REASON_OF(i) ((i) == 0 -> FOR_TIMERS : 0)
#else
#define REASON_OF(i) SCOPE_OF(i)
#endif
#define EXISTS(s) assert((s) == 0 || nested_alive || users_of_nested > 0)

/* The task is given to a handler, where its callback may free it. */
inline give_over(i) {
  d_step {
    assert(alive[i] && !placed[i]);
    assert(scope_lock[0] != _pid && scope_lock[1] != _pid);
    alive[i] = false;
    completed[i]++
  }
}

/* `why` says whether it was refused. */
inline enter(i) {
  if
  :: d_step { closed[REASON_OF(i)] -> EXISTS(SCOPE_OF(i)); why = reason[REASON_OF(i)]; assert(reason[REASON_OF(i)] != NONE) }
  :: d_step {
       !closed[REASON_OF(i)] && slot[SCOPE_OF(i)] == 0 ->
       EXISTS(SCOPE_OF(i));
       assert(reg[i] == OUTSIDE && !looked[REASON_OF(i)]);
       slot[SCOPE_OF(i)] = (i) + 1;
       why = NONE
     }
  :: d_step {
       UNDER(SCOPE_OF(i)) ->
       EXISTS(SCOPE_OF(i));
       why = reason[REASON_OF(i)];
       if
       :: why == NONE -> assert(reg[i] == OUTSIDE && !looked[REASON_OF(i)]); reg[i] = ENTERED
       :: else
       fi
     }
  fi
}

#ifdef MUT_LEAVE_TRUSTS_SLOT
#define MAY_READ(s) true
#else
#define MAY_READ(s) UNDER(s)
#endif

/* Registration i leaves scope s; `mine` says whether its owner goes on with what has ended. Once it is
   not in the slot, it does not come there again before it enters again: so to look at the slot and to
   take the lock may be one step. */
inline leave_scope(s, i) {
  if
  :: d_step { slot[s] == (i) + 1 -> EXISTS(s); assert(reg[i] == OUTSIDE); slot[s] = 0; mine = true }
  :: d_step {
       slot[s] != (i) + 1 && MAY_READ(s) ->
       EXISTS(s);
#ifdef MUT_LEAVE_IGNORES_CALL
       mine = true;
#else
       mine = reg[i] != CALLED;
#endif
       reg[i] = (mine -> OUTSIDE : HANDED);
#ifdef MUT_BOTH_GIVE_IT_OVER
       mine = true
#endif
     }
  fi
}

/* The owner of the completion; `mine` says whether it gives the task over. */
inline leave(i) {
  assert(alive[i]);
  leave_scope(SCOPE_OF(i), i)
}

proctype Series(byte i) {
  bool mine;
  mtype why;
  do
  :: completed[i] == TASKS -> break
  :: else ->
     alive[i] = true;
     enter(i);
     if
     :: why != NONE -> give_over(i)  /* refused: it has not entered */
     :: else ->
        lock(place_lock);
#ifndef MUT_PLACE_IGNORES_REASON
        why = reason[REASON_OF(i)];
#endif
        if
        :: why == NONE -> placed[i] = true
        :: why == NONE -> why = ENOMEM  /* the start fails */
        :: else
        fi;
        unlock(place_lock);
        if
        :: why != NONE ->
           leave(i);
           if
           :: mine -> give_over(i)
           :: else
           fi
        :: else
        fi
     fi;
     d_step { !alive[i] -> mine = false; why = NONE }
  od;
#ifdef NESTED
  /* The end of the nested series completes the scope task, which leaves the outer scope. */
  if
  :: i == 1 ->
     leave_scope(0, 2);
     if
     :: mine -> nested_alive = false
     :: else
     fi
  :: else
  fi
#endif
}

/* Ends what waits, sooner or later. */
proctype Finisher(byte i) {
  bool mine;
  do
  :: d_step { placed[i] && place_lock == 0 -> place_lock = _pid };
     placed[i] = false;
     if
     :: leave(i); unlock(place_lock)
     :: unlock(place_lock); leave(i)
     fi;
     if
     :: mine -> give_over(i)
     :: else
     fi
  :: completed[i] == TASKS -> break
  od
}

/* Registration i of scope s is being called: no lock is held, but for a mutation. */
inline call(i, why) {
  assert(alive[i] && why == reason[REASON_OF(i)]);
  lock(place_lock);
  taken = placed[i];
  placed[i] = false;
  unlock(place_lock);
  if
  :: taken -> leave(i); RULE(!mine)
  :: else
  fi
}

/* Takes registration i out of the slot or the list of scope s; `mine` says whether it was there. */
inline take(s, i) {
  if
  :: d_step {
       UNDER(s) && slot[s] != (i) + 1 ->
       EXISTS(s);
       mine = reg[i] == ENTERED;
       reg[i] = (mine -> CALLED : reg[i]);
#ifdef MUT_CALLS_UNDER_MUTEX
       scope_lock[s] = (mine -> _pid : 0)
#endif
     }
  :: d_step {
       UNDER(s) && slot[s] == (i) + 1 ->
       EXISTS(s);
       slot[s] = 0;
#ifdef MUT_SLOT_IS_LEFT_BEFORE_MARK
       mine = true
     };
     d_step {
       UNDER(s) ->
#else
       scope_lock[s] = _pid;
       mine = true
     };
     d_step {
#ifndef MUT_CALLS_UNDER_MUTEX
       scope_lock[s] = 0;
#endif
#endif
       reg[i] = CALLED
     }
  fi
}

/* One registration after the other, each found anew. */
inline cancel_tasks(s, first, last, why) {
  i = first;
  do
  :: i > last -> break
  :: else ->
     looked[REASON_OF(i)] = looked[REASON_OF(i)] || reason[REASON_OF(i)] == why;
     take(s, i);
     if
     :: mine ->
        call(i, why);
#ifdef MUT_CALLS_UNDER_MUTEX
        unlock(scope_lock[s]);
#endif
        d_step {
          UNDER(s) ->
          EXISTS(s);
          mine = reg[i] == HANDED;
          assert(alive[i] && (mine || reg[i] == CALLED));
#ifdef MUT_LOSES_NEXT_BETWEEN_HOLDS
          if
          :: i + 1 < SERIES && SCOPE_OF(i + 1) == s && reg[i + 1] == ENTERED ->
             reg[i + 1] = OUTSIDE
          :: else
          fi;
#endif
          reg[i] = OUTSIDE
        };
        if
        :: mine ->
#ifdef MUT_NOBODY_GIVES_IT_OVER
           skip
#else
           give_over(i)
#endif
        :: else
        fi
     :: else
     fi;
     d_step { taken = false; mine = false; i++ }
  od;
  i = 0
}

/* `ended`: this call has ended the scope. */
inline close(s, why) {
  d_step {
    UNDER(s) ->
    EXISTS(s);
    ended = reason[s] == NONE;
#ifdef MUT_LAST_REASON_COUNTS
    reason[s] = why;
#else
#ifndef MUT_REASON_COMES_LAST
    reason[s] = (ended -> why : reason[s]);
#endif
#endif
    scope_lock[s] = _pid
  };
  d_step {
#ifndef MUT_SLOT_STAYS_OPEN
    closed[s] = true;
#endif
    scope_lock[s] = 0
  }
}

inline cancel_nested(why) {
  close(1, why);
  if
  :: ended -> cancel_tasks(1, 1, 1, why)
  :: else
  fi
}

#ifdef NESTED
/* The registration of the scope task is called. */
inline cancel_scope_task(why) {
  take(0, 2);
  if
  :: mine ->
     assert(nested_alive);
     cancel_nested(why);
     d_step {
       UNDER(0) ->
       mine = reg[2] == HANDED;
       reg[2] = OUTSIDE
     };
     if
     :: mine ->
#ifdef MUT_SCOPE_TASK_IS_NOT_GIVEN_OVER
        skip
#else
        nested_alive = false
#endif
     :: else
     fi
  :: else
  fi
}
#define TIMERS_ARE_ENDED(why) cancel_scope_task(why)
#define OTHERS_ARE_ENDED(why) cancel_tasks(0, 0, 0, why)
#else
#define TIMERS_ARE_ENDED(why) cancel_tasks(0, 0, 0, why)
#define OTHERS_ARE_ENDED(why) cancel_tasks(0, 1, 1, why)
#endif

#ifdef WITH_TIMERS
/* CancelScope::cancel_timers of the outer scope. */
proctype TimersCanceller(mtype why) {
  bool taken, mine, ended, ended_timers;
  byte i;
  d_step {
    UNDER(0) ->
    ended_timers = reason[FOR_TIMERS] == NONE;
    reason[FOR_TIMERS] = (ended_timers -> why : reason[FOR_TIMERS]);
    scope_lock[0] = _pid
  };
  d_step { closed[FOR_TIMERS] = true; scope_lock[0] = 0 };
  if
  :: ended_timers ->
     TIMERS_ARE_ENDED(why);
#ifdef MUT_TIMERS_END_ALL
     OTHERS_ARE_ENDED(why)
#endif
  :: else
  fi;
  skip;
  d_step { assert(!ended_timers || reason[FOR_TIMERS] == why) }
}
#endif

/* CancelScope::cancel of the outer scope. */
proctype Canceller(mtype why) {
  bool taken, mine, ended, ended_outer;
#ifdef WITH_TIMERS
  bool ends_timers;
#endif
  byte i;
#ifdef WITH_TIMERS
  d_step {
    UNDER(0) ->
    ended = reason[0] == NONE;
    ends_timers = ended && reason[FOR_TIMERS] == NONE;
    reason[0] = (ended -> why : reason[0]);
    scope_lock[0] = _pid
  };
  closed[0] = true;
#ifdef MUT_TIMERS_GET_LAST_REASON
  reason[FOR_TIMERS] = (ended -> why : reason[FOR_TIMERS]);
#elif !defined(MUT_CANCEL_LEAVES_TIMERS)
  reason[FOR_TIMERS] = (ends_timers -> why : reason[FOR_TIMERS]);
#endif
  d_step {
#ifndef MUT_CANCEL_LEAVES_TIMERS
    closed[FOR_TIMERS] = true;
#endif
    scope_lock[0] = 0
  };
#else
  close(0, why);
#endif
  ended_outer = ended;
  if
  :: ended_outer ->
     won++;
#ifdef WITH_TIMERS
     if
#ifndef MUT_CANCEL_LEAVES_TIMERS
     :: ends_timers -> TIMERS_ARE_ENDED(why)
#endif
     :: else
     fi;
#else
     TIMERS_ARE_ENDED(why);
#endif
     OTHERS_ARE_ENDED(why);
#ifdef MUT_REASON_COMES_LAST
     reason[0] = why
#endif
  :: else
  fi;
  skip;  /* a d_step cannot be where a loop ends */
  d_step {
    assert(reason[0] != NONE);
    assert(!ended_outer || reason[0] == why);
#ifdef WITH_TIMERS
    assert(reason[FOR_TIMERS] != NONE);
#endif
    over = true
  }
}

#ifdef NESTED
/* The deadline of the scope task, or a user's handle of the scope: a reference each. */
proctype NestedCanceller() {
  bool taken, mine, ended;
  byte i;
  d_step {
    if
    :: nested_alive -> users_of_nested++; ended = true
    :: else -> ended = false
    fi
  }
  if
  :: ended ->
#ifdef MUT_CANCELLER_HOLDS_NO_REFERENCE
     users_of_nested--;
#endif
     cancel_nested(ETIMEDOUT);
#ifndef MUT_CANCELLER_HOLDS_NO_REFERENCE
     users_of_nested--
#endif
  :: else
  fi
}
#endif

init {
  byte k;
  atomic {
#ifdef NESTED
    /* The scope task has entered the outer scope. */
    if
    :: slot[0] = 3
    :: reg[2] = ENTERED
    fi;
    run NestedCanceller();
#endif
    run Series(0);
    run Series(1);
#ifndef PATIENT
    run Finisher(0);
    run Finisher(1);
#endif
    run Canceller(ECANCELED);
#ifdef TWO_CANCELLERS
    run Canceller(ETIMEDOUT);
#endif
#ifdef WITH_TIMERS
    run TimersCanceller(ETIMEDOUT)
#endif
  };
  (_nr_pr == 1);
  d_step {
    assert(completed[0] == TASKS && completed[1] == TASKS);
    assert(!placed[0] && !placed[1] && !alive[0] && !alive[1]);
    assert(reg[0] == OUTSIDE && reg[1] == OUTSIDE && slot[0] == 0 && slot[1] == 0);
    assert(won == 1 && over);
#ifdef NESTED
    assert(!nested_alive && users_of_nested == 0 && reg[2] == OUTSIDE);
#endif
  }
}

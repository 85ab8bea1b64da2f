/*
 * Scopes: tasks that wait are ended early by whoever cancels their scope (class CancelScope).
 *
 *   S[s]       the mutex of scope s; 0 is the outer one, 1 the one nested in it
 *   reason[s]  atomic, written under S[s]: NONE while the scope is open, then why it ended
 *   reg[i]     guarded by the mutex of its scope: the registration of series i
 *   L          the mutex of the place where tasks wait (a queue, a table of names, a line)
 *   placed[i]  guarded by L: the task of series i can be found at the place
 *
 * Series 0 and, unless NESTED, series 1 run directly in the outer scope. With NESTED, series 1 runs
 * in the nested scope. That scope belongs to a scope task, which is registered in the outer scope as
 * number 2: whoever cancels the outer scope cancels the nested one, too. The scope task completes
 * when series 1 has ended, and its scope may be freed then.
 *
 * Each series runs one task after the other, TASKS of them. A task enters the scope, goes to the
 * place, and is ended there by the process Finisher (an expiry, a message, a reply) or by a
 * canceller. The order of locks is L, S[1], S[0]: a Finisher leaves the scope while it holds L, as
 * whoever cancels timers by name does.
 */

#ifndef TASKS
#define TASKS 2
#endif
#define SERIES 2

mtype = { NONE, SUCCESS, ECANCELED, ETIMEDOUT };
mtype = { OUTSIDE, ENTERED, CALLED, HANDED };

byte L;
byte S[2];
mtype reason[2] = NONE;
mtype reg[3] = OUTSIDE;
bool placed[SERIES];

/* Ghost state. */
bool alive[SERIES];          /* the task that series i runs now exists */
byte completed[SERIES];      /* how many of its tasks have completed */
byte given_over[SERIES];     /* how many completions a handler was given */
bool nested_alive = true;    /* the scope task and its scope exist */
byte users_of_nested;        /* cancellers that hold a reference to the nested scope */
byte won;                    /* cancels of the outer scope that were told that they ended it */
bool over;                   /* a canceller of the outer scope has returned */

inline lock(mutex) { d_step { mutex == 0 -> mutex = _pid } }
inline unlock(mutex) { assert(mutex == _pid); mutex = 0 }

#ifdef NESTED
#define SCOPE_OF(i) (i)
#else
#define SCOPE_OF(i) 0
#endif
#define EXISTS(s) assert((s) == 0 || nested_alive || users_of_nested > 0)

/* The task is given to a handler, where its callback may free it. */
inline give_over(i) {
  d_step {
    assert(alive[i] && !placed[i]);
    assert(S[0] != _pid && S[1] != _pid);
    alive[i] = false;
    completed[i]++;
    given_over[i]++
  }
}

/* The owner of the completion; `mine` says whether it gives the task over. */
inline leave(i) {
  lock(S[SCOPE_OF(i)]);
  d_step {
    EXISTS(SCOPE_OF(i));
    assert(alive[i]);
    if
    :: reg[i] == CALLED ->
#ifdef MUT_LEAVE_IGNORES_CALL
       reg[i] = OUTSIDE; mine = true
#else
       reg[i] = HANDED;
#ifdef MUT_BOTH_GIVE_IT_OVER
       mine = true
#else
       mine = false
#endif
#endif
    :: else -> reg[i] = OUTSIDE; mine = true
    fi
  }
  unlock(S[SCOPE_OF(i)])
}

proctype Series(byte i) {
  bool mine;
  mtype why;
  do
  :: completed[i] == TASKS -> break
  :: else ->
     /* The task before is over. */
     completed[i] == given_over[i];
     alive[i] = true;
     lock(S[SCOPE_OF(i)]);
     EXISTS(SCOPE_OF(i));
     d_step {
       why = reason[SCOPE_OF(i)];
       if
       :: why == NONE -> assert(reg[i] == OUTSIDE); reg[i] = ENTERED
       :: else
       fi
     }
     unlock(S[SCOPE_OF(i)]);
     if
     :: why != NONE -> give_over(i)  /* refused: it has not entered */
     :: else ->
        lock(L);
#ifndef MUT_PLACE_IGNORES_REASON
        why = reason[SCOPE_OF(i)];
#endif
        if
        :: why == NONE -> placed[i] = true
        :: else
        fi;
        unlock(L);
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
     !alive[i]
  od;
#ifdef NESTED
  /* The end of the nested series completes the scope task, which leaves the outer scope. */
  if
  :: i == 1 ->
     lock(S[0]);
     if
     :: reg[2] == CALLED -> reg[2] = HANDED; mine = false
     :: else -> reg[2] = OUTSIDE; mine = true
     fi;
     unlock(S[0]);
     if
     :: mine -> nested_alive = false
     :: else
     fi
  :: else
  fi
#endif
}

/* Ends what waits, sooner or later. With PATIENT, only cancellers end tasks. */
proctype Finisher(byte i) {
  bool mine;
  do
  :: d_step { placed[i] && L == 0 -> L = _pid };
     placed[i] = false;
     leave(i);
     unlock(L);
     if
     :: mine -> give_over(i)
     :: else
     fi
  :: completed[i] == TASKS -> break
  od
}

/* Registration i of scope s is being called: no lock is held, but for a mutation. */
inline call(i, why) {
  assert(alive[i]);
  lock(L);
  taken = placed[i];
  placed[i] = false;
  unlock(L);
  if
  :: taken -> leave(i); assert(!mine)
  :: else
  fi
}

/* One registration after the other, each found anew. */
inline cancel_tasks(s, first, last, why) {
  i = first;
  do
  :: i > last -> break
  :: else ->
     lock(S[s]);
     EXISTS(s);
     if
     :: reg[i] == ENTERED ->
        reg[i] = CALLED;
#ifndef MUT_CALLS_UNDER_MUTEX
        unlock(S[s]);
#endif
        call(i, why);
#ifndef MUT_CALLS_UNDER_MUTEX
        lock(S[s]);
#endif
        EXISTS(s);
        if
        :: reg[i] == HANDED ->
           reg[i] = OUTSIDE;
           unlock(S[s]);
#ifndef MUT_NOBODY_GIVES_IT_OVER
           give_over(i)
#endif
        :: else ->
           assert(reg[i] == CALLED);
           reg[i] = OUTSIDE;
           unlock(S[s])
        fi
     :: else -> unlock(S[s])
     fi;
     i++
  od
}

/* `ended`: this call has ended the scope. */
inline close(s, why) {
  lock(S[s]);
  EXISTS(s);
  d_step {
    ended = reason[s] == NONE;
#ifdef MUT_LAST_REASON_COUNTS
    reason[s] = why;
#else
#ifndef MUT_REASON_COMES_LAST
    if
    :: ended -> reason[s] = why
    :: else
    fi;
#endif
#endif
    skip
  }
  unlock(S[s])
}

inline cancel_nested(why) {
  close(1, why);
  if
  :: ended -> cancel_tasks(1, 1, 1, why)
  :: else
  fi
}

proctype Canceller(mtype why) {
  bool taken, mine, ended, ended_outer;
  byte i;
  close(0, why);
  ended_outer = ended;
  if
  :: ended_outer ->
     won++;
#ifdef NESTED
     cancel_tasks(0, 0, 0, why);
     lock(S[0]);
     if
     :: reg[2] == ENTERED ->
        reg[2] = CALLED;
        unlock(S[0]);
        assert(nested_alive);
        cancel_nested(why);
        lock(S[0]);
        if
#ifdef MUT_SCOPE_TASK_IS_NOT_GIVEN_OVER
        :: reg[2] == HANDED -> reg[2] = OUTSIDE; unlock(S[0])
#else
        :: reg[2] == HANDED -> reg[2] = OUTSIDE; unlock(S[0]); nested_alive = false
#endif
        :: else -> reg[2] = OUTSIDE; unlock(S[0])
        fi
     :: else -> unlock(S[0])
     fi
#else
     cancel_tasks(0, 0, 1, why);
#ifdef MUT_REASON_COMES_LAST
     lock(S[0]);
     reason[0] = why;
     unlock(S[0])
#endif
#endif
  :: else
  fi;
  skip;  /* a d_step cannot be where a loop ends */
  d_step {
    assert(reason[0] != NONE);
    assert(!ended_outer || reason[0] == why);
    over = true
  }
}

#ifdef NESTED
/* The deadline of the scope task, or a user who has kept the scope: a reference each. */
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
    reg[2] = ENTERED;
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
    run Canceller(ETIMEDOUT)
#endif
  };
  (_nr_pr == 1);
  d_step {
    assert(completed[0] == TASKS && completed[1] == TASKS);
    assert(!placed[0] && !placed[1] && !alive[0] && !alive[1]);
    assert(reg[0] == OUTSIDE && reg[1] == OUTSIDE);
    assert(won == 1 && over);
#ifdef NESTED
    assert(!nested_alive && users_of_nested == 0 && reg[2] == OUTSIDE);
#endif
  }
}

/*
 * A timer with a name in a series that may be interrupted: start, expire, stop, cancel by name,
 * interrupt (rule 9). The names are those of timer.pml, and
 *   I            the mutex of the series' scope
 *   entered      guarded by I: the timer is in the scope
 *   interrupted  guarded by I: nothing enters any more
 *   marked       guarded by P: a start to come refuses (TimerNode::mark_)
 *
 * The reason of the interruption is ETIMEDOUT, to tell it from a cancel.
 *
 * The callback may free the timer as soon as it is completed. The stop comes at any moment.
 */

mtype = { NONE, SUCCESS, ABORTED, ECANCELED, ETIMEDOUT };

/* Mutexes: the process that holds it, or 0. Order B, I, P. */
byte P, B, I;

bool stopped, flag, queued, marked, entered, interrupted;
bool linked = true;
mtype outcome = NONE;

/* Ghost state. */
bool alive = true;
bool counted, taken_out, interruption_over;

#define TOUCH assert(alive)

inline lock(mutex) { d_step { mutex == 0 -> mutex = _pid } }
inline unlock(mutex) { assert(mutex == _pid); mutex = 0 }

/* No lock is held. */
inline complete(how) {
  d_step {
    assert(P != _pid && B != _pid && I != _pid);
    TOUCH;
    assert(outcome == NONE);
    assert(!linked && !entered && !queued);
    assert(counted == (how == ECANCELED));
    assert(!taken_out || how == ECANCELED || how == ETIMEDOUT);
    outcome = how;
    alive = false
  }
}

/* The owner of the completion; needs the locals was_linked, was_entered. */
inline leave_name() {
  assert(I != _pid && P != _pid);
  lock(B);
  d_step { TOUCH; was_linked = linked; linked = false };
  unlock(B)
}
inline leave_scope() {
  assert(P != _pid);
  lock(I);
  d_step { TOUCH; was_entered = entered; entered = false };
  unlock(I)
}

proctype Starter() {
  bool was_linked, was_entered, old;
  mtype verdict = NONE;
  lock(I);
  if
  :: interrupted -> verdict = ETIMEDOUT
  :: else -> entered = true
  fi;
  unlock(I);
  if
  :: verdict == NONE ->
     lock(P);
     d_step { TOUCH; old = flag; flag = true };
     if
     :: old -> verdict = ECANCELED
#ifndef MUT_START_IGNORES_MARK
     :: !old && marked -> verdict = ETIMEDOUT
     :: !old && !marked && stopped -> verdict = ABORTED
     :: !old && !marked && !stopped -> queued = true
     :: !old && !marked && !stopped -> verdict = SUCCESS  /* it is due already */
#else
     :: !old && stopped -> verdict = ABORTED
     :: !old && !stopped -> queued = true
#endif
     fi;
     unlock(P);
     if
#ifdef MUT_DUE_STAYS_IN_SCOPE
     :: verdict == SUCCESS
     :: verdict != NONE && verdict != SUCCESS ->
#else
     :: verdict != NONE ->
#endif
        leave_scope();
        if
        :: !was_entered -> verdict = ETIMEDOUT
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  if
  :: verdict != NONE ->
     leave_name();
     if
     :: !was_linked -> verdict = ECANCELED
     :: else
     fi;
     complete(verdict)
  :: else
  fi
}

/* What is queued may be due at any moment; after the stop it is taken out. */
proctype Poller() {
  bool was_linked, was_entered;
  mtype verdict;
  do
  :: d_step { queued && P == 0 -> P = _pid };
     assert(!interruption_over);  /* or it would wait until it is due */
     queued = false;
     if
     :: stopped -> verdict = ABORTED
     :: else -> verdict = SUCCESS
     fi;
     unlock(P);
     leave_name();
#ifndef MUT_EXPIRY_STAYS_IN_SCOPE
     leave_scope();
#else
     was_entered = true;
#endif
     if
     :: was_linked && was_entered
     :: was_linked && !was_entered -> verdict = ETIMEDOUT
     :: !was_linked -> verdict = ECANCELED
     fi;
     complete(verdict)
  :: outcome != NONE -> break
  od
}

proctype Stopper() {
  lock(P);
  stopped = true;
  unlock(P)
}

proctype Canceller() {
  bool was_entered, old, taken;
  lock(B);
  if
  :: linked ->
     d_step { linked = false; counted = true; TOUCH; old = flag; flag = true };
     if
     :: old ->
        lock(P);
        d_step { TOUCH; taken = queued; queued = false };
        unlock(P);
        if
#ifndef MUT_CANCELLER_STAYS_IN_SCOPE
        :: taken -> leave_scope()
#else
        :: taken
#endif
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  unlock(B);
  if
  :: taken -> complete(ECANCELED)
  :: else
  fi
}

proctype Interrupter() {
  bool was_linked, owner;
  lock(I);
#ifndef MUT_SCOPE_STAYS_OPEN
  interrupted = true;
#endif
  if
  :: entered ->
     d_step { entered = false; taken_out = true };
#ifdef MUT_INTERRUPTER_LETS_GO_OF_I
     unlock(I);
#endif
     lock(P);
     d_step {
       TOUCH;
       owner = queued;
       queued = false;
       if
       :: !owner -> marked = true
       :: else
       fi
     };
     unlock(P)
#ifdef MUT_INTERRUPTER_LETS_GO_OF_I
     ; lock(I)
#endif
  :: else
  fi;
  unlock(I);
  if
  :: owner ->
#ifndef MUT_INTERRUPTER_KEEPS_NAME
     leave_name();
#else
     was_linked = true;
#endif
#ifndef MUT_INTERRUPTER_IGNORES_CANCEL
     complete((was_linked -> ETIMEDOUT : ECANCELED))
#else
     complete(ETIMEDOUT)
#endif
  :: else
  fi;
  interruption_over = true
}

init {
  atomic {
    run Starter();
    run Poller();
    run Stopper();
    run Canceller();
    run Interrupter()
  };
  (_nr_pr == 1);
  d_step {
    assert(outcome != NONE);
    assert(!alive && !linked && !entered && !queued)
  }
}

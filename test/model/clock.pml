/*
 * How time moves on the manual clock: by the thread that called advance(), and by the last handler thread
 * that has nothing more to do.
 *
 * The names are those of the code:
 *   now, target         ManualClock::now_ns_, target_ns_
 *   stepping_lock       ManualClock::stepping_. moving_ is left out: one thread calls advance(), once
 *   advancing           whether ManualClock::advancing_ is set, and with it WorkerPool::source_
 *   handlers, computations  what waits in the pools
 *   busy, taken         of each pool: the workers that are neither idle nor blocked; WorkerPool::taken_
 *   inbox, asked, made  Poller::intake_, rounds_asked_, rounds_made_
 *   leaving             PollerTimers::leaving_
 *   due[t]              the deadline of a timer that is in the queue of the poller; NONE: it is not
 *
 * Timer LEADERS may be ended by the poller's thread only, as those of a connection. Work means what
 * was posted and has not ended, and timers that were taken out of the queue and are not posted yet.
 * An item that runs may start a timer, which may be due at once, or post work to the other pool or to
 * the poller. Each access to a pool, to the poller or to a timer is one step, as under its mutex;
 * memory is sequentially consistent.
 *
 * Parameters (-D):
 *   ACTIONS   how often items start or post something
 *   NOISE     how often a handler, and the poller, may wake without a reason
 *   WITH_FDS  the poller has a descriptor, so that its thread must be asked
 *   MUT_x     breaks one rule: see the file `mutations`
 */

#ifndef ACTIONS
#define ACTIONS 1
#endif
#ifndef NOISE
#define NOISE 1
#endif
#define HANDLERS 2
#define TIMERS 3
#define LEADERS 2
#define TARGET 4
#define NONE 255

byte now, target;
byte due[TIMERS];
byte handlers, computations, inbox, asked, made;
byte busy_handlers, busy_computing, taken_handlers, taken_computing;
bool stepping_lock, advancing, returned, leaving;
byte left = ACTIONS;
byte unasked = NOISE;   /* how often the poller may still wake without having been asked for a round */
byte spurious = NOISE;  /* how often an idle handler may still wake without a reason */

/* Ghost: the work that there is. */
byte work;

#define LOCK_STEPPING atomic { !stepping_lock -> stepping_lock = true }
#define UNLOCK_STEPPING stepping_lock = false

#define DUE(t) (due[t] <= now)
#define QUIET_HANDLERS(callers) (handlers == 0 && busy_handlers == callers)
#define QUIET_COMPUTING (computations == 0 && busy_computing == 0)
#define SETTLED (asked == made && inbox == 0 && !leaving && !DUE(0) && !DUE(1) && !DUE(LEADERS))
#ifdef WITH_FDS
#define DESCRIPTORS true
#else
#define DESCRIPTORS false
#endif

/* WorkerPool::quiet_count(), by the last handler: whether only that handler is busy. */
#ifdef MUT_IGNORES_OTHER_HANDLERS
#define LAST_HANDLER (handlers == 0)
#else
#define LAST_HANDLER QUIET_HANDLERS(1)
#endif

/* The promise: time moves only when nothing is due, posted or running. */
inline move_to(time) {
  atomic {
    if
    :: time > now -> assert(work == 0 && !DUE(0) && !DUE(1) && !DUE(LEADERS)); now = time
    :: else
    fi
  }
}

/* ManualClock.cc: expire(). It does not take what only the poller's thread may end. */
inline expire() {
  atomic {
    count = (DUE(0) -> 1 : 0) + (DUE(1) -> 1 : 0);
    work = work + count;
    if :: DUE(0) -> due[0] = NONE :: else fi;
    if :: DUE(1) -> due[1] = NONE :: else fi
  };
  handlers = handlers + count
}

inline find_earliest() {
  atomic {
    next = due[0];
    if :: due[1] < next -> next = due[1] :: else fi;
    if :: due[LEADERS] < next -> next = due[LEADERS] :: else fi
  }
}

/* What user code does in an item that runs. */
inline act() {
  if
  :: true
  :: atomic { left > 0 && due[0] == NONE -> left--; due[0] = now }
  :: atomic { left > 0 && due[1] == NONE -> left--; if :: due[1] = now :: due[1] = now + 1 fi }
  :: atomic { left > 0 -> left--; work++; computations++ }
  :: atomic { left > 0 -> left--; work++; inbox++ }
  fi
}

/* ManualClock::step_on_worker(), and as much of WorkerPool::source_has_more() as matters. */
inline step_on_worker() {
  more = false;
  if
#ifdef MUT_MOVES_BESIDE_THE_THREAD
  :: true ->
#else
  :: atomic { !stepping_lock -> stepping_lock = true };
#endif
     if
     :: advancing ->
        atomic { quiet = LAST_HANDLER; before = taken_handlers };
        atomic { quiet = quiet && QUIET_COMPUTING; before = before + taken_computing };
        if
        :: quiet ->
           expire();
           more = count > 0;
           if
#ifdef MUT_IGNORES_THE_POLLER
           :: !more -> quiet = true
#else
           :: !more -> quiet = SETTLED && !DESCRIPTORS
#endif
           :: else -> quiet = false
           fi;
#ifndef MUT_LOOKS_AT_THE_POOLS_ONCE
           atomic { quiet = quiet && LAST_HANDLER; before = before - taken_handlers };
           atomic {
             quiet = quiet && QUIET_COMPUTING;
#ifndef MUT_COMPARES_NO_COUNTS
             quiet = quiet && before == taken_computing
#endif
           }
#endif
           if
           :: quiet ->
              find_earliest();
              if
              :: next <= target -> move_to(next); expire(); more = count > 0
              :: else
              fi
           :: else
           fi
        :: else
        fi
     :: else
     fi;
     atomic { UNLOCK_STEPPING; quiet = false; before = 0; next = 0; count = 0 }
#ifndef MUT_MOVES_BESIDE_THE_THREAD
  :: stepping_lock
#endif
  fi
}

proctype Handler() {
  byte count, next, before;
  bool more, quiet;
  do
  :: atomic { handlers > 0 -> handlers--; taken_handlers++ };
     act();
     work--
  :: handlers == 0 ->
     more = false;
     if
     :: advancing && QUIET_HANDLERS(1) -> step_on_worker()
     :: else
     fi;
     if
     :: more
     :: else ->
        atomic { busy_handlers--; more = handlers > 0 };
end_idle:
        if
        :: atomic { handlers > 0 -> busy_handlers++ }
        :: atomic { spurious > 0 -> spurious--; busy_handlers++ }
        :: returned -> break
        fi
     fi
  od
}

proctype Computer() {
end_idle:
  do
  :: atomic { computations > 0 -> computations--; taken_computing++; busy_computing++ };
     /* The series goes on: mostly a callback on a handler. */
     if
     :: atomic { work++; handlers++ }
     :: true
     fi;
     work--;
     busy_computing--
  :: returned -> break
  od
}

/* The poller's thread. It ends a round with what it has finished posted to the handlers. */
proctype Leader() {
  byte round, items;
end_wait:
  do
  :: atomic {
       asked != made || inbox > 0 || (unasked > 0 && (DUE(0) || DUE(1) || DUE(LEADERS))) ->
       if :: asked == made && inbox == 0 -> unasked-- :: else fi;
       if :: DUE(0) -> due[0] = NONE; items++; work++ :: else fi;
       if :: DUE(1) -> due[1] = NONE; items++; work++ :: else fi;
       if :: DUE(LEADERS) -> due[LEADERS] = NONE; items++; work++ :: else fi;
       leaving = items > 0
     };
     atomic {
       if
       :: asked != made || inbox > 0 -> asked++; round = asked
       :: else
       fi
     };
     if
     :: round > 0 -> atomic { items = items + inbox; inbox = 0 }
     :: else
     fi;
     handlers = handlers + items;
     leaving = false;
     atomic { made = (round > 0 -> round : made); items = 0; round = 0 }
  :: returned -> break
  od
}

inline let_handlers_move(sum) {
  UNLOCK_STEPPING;
  atomic { QUIET_HANDLERS(0) -> sum = taken_handlers };
  LOCK_STEPPING
}

inline wait_for_pollers() {
  atomic {
    had_work = !SETTLED;
    if :: had_work || DESCRIPTORS -> asked++; round = asked :: else -> round = made fi
  };
  made >= round;
  do
  :: atomic { !SETTLED -> had_work = true; asked++; round = asked }; made >= round
  :: SETTLED -> break
  od
}

inline settle() {
  do
  :: expire();
     let_handlers_move(before);
     atomic { QUIET_COMPUTING -> before = before + taken_computing };
     wait_for_pollers();
#if defined(MUT_SETTLES_AFTER_ONE_LOOK)
     after = before;
#elif defined(MUT_SECOND_LOOK_LETS_HANDLERS_MOVE)
     let_handlers_move(after);
     atomic { QUIET_COMPUTING -> after = after + taken_computing };
#else
     atomic { QUIET_HANDLERS(0) -> after = taken_handlers };
     atomic { QUIET_COMPUTING -> after = after + taken_computing };
#endif
     if :: !had_work && before == after -> break :: else fi
  od
}

/* ManualClock::advance() */
active proctype Mover() {
  byte count, next, before, after, round;
  bool had_work;
  atomic {
    due[0] = 1; due[1] = 3; due[LEADERS] = 2;
    busy_handlers = HANDLERS;
    run Handler(); run Handler(); run Computer(); run Leader()
  };
  LOCK_STEPPING;
  target = TARGET;
  advancing = true;
  settle();
  find_earliest();
  do
  :: next <= target -> move_to(next); settle(); find_earliest()
  :: else -> break
  od;
  move_to(target);
  settle();
  advancing = false;
  UNLOCK_STEPPING;
  assert(now == TARGET && work == 0);
  assert(due[0] > TARGET && due[1] > TARGET && due[LEADERS] > TARGET);
  returned = true
}

/* When nothing else can happen, advance() must have returned. */
active proctype Judge() {
  timeout;
  assert(returned)
}

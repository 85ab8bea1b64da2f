/*
 * A client's session that may be ended early (EarlyEnd, rule 15): a look-up, a queue, a connection,
 * each with an end of its own, and an interruption at any moment.
 *
 * The names are those of docs/concurrency.md and of the code:
 *   I           the mutex of the series' scope; entered and interrupted are guarded by it (rule 9)
 *   H, D        the hub's and the resolver's: resolving, listed
 *   E           the endpoint's: queued
 *   C           the connection's: carried, told
 *   X           of the EarlyEnd: place
 *   asked       EarlyEnd::error_
 *   users       the exchange, and the turn on a handler: the last of them frees the EarlyEnd
 *
 * One session. Who looks up, serves the queue or answers may do so at any moment, or never. Every
 * access to shared data is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   MUT_x       breaks one rule: see the file `mutations`
 */

#define NOBODY 0
#define NOWHERE 0
#define AT_LOOK_UP 1
#define IN_QUEUE 2
#define ON_CONNECTION 3

byte I = NOBODY, H = NOBODY, D = NOBODY, E = NOBODY, C = NOBODY, X = NOBODY;
bool entered, interrupted, asked, resolving, listed, queued, carried, told;
byte place = NOWHERE, users = 1;

/* Ghosts. */
bool alive = true, freed, cut, retried, silent, over;
byte callbacks;

#define TOUCH assert(alive && callbacks == 0)
#define USE assert(!freed)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

inline unref() {
  d_step {
    USE;
#ifdef MUT_EXCHANGE_FREES
    freed = true
#else
    users--;
    freed = users == 0
#endif
  }
}

/* Under the lock of the place. */
inline arrive(where, refused) {
  LOCK(X);
  d_step { USE; TOUCH; refused = asked };
#ifdef MUT_ARRIVES_UNSEEN
  refused = false;
#endif
  if
  :: !refused -> place = where
  :: else
  fi;
  UNLOCK(X)
}

inline leave() {
  LOCK(X);
  d_step { USE; place = NOWHERE };
  UNLOCK(X)
}

/* ClientSession::end, by who has it. */
inline end_session() {
  d_step { TOUCH; assert(!resolving && !listed && !queued && !carried) };
  LOCK(I);
  d_step { cut = !entered; entered = false };
  UNLOCK(I);
  leave();
  d_step { TOUCH; callbacks++; alive = false };
  unref()
}

/* ClientSession::proceed, ClientEndpoint::enqueue. */
inline line_up() {
  leave();
#ifdef MUT_ARRIVES_BEFORE_THE_LOCK
  arrive(IN_QUEUE, refused);
  LOCK(E);
#else
  LOCK(E);
  arrive(IN_QUEUE, refused);
#endif
  if
  :: refused -> UNLOCK(E); end_session()
  :: else -> queued = true; UNLOCK(E)
  fi
}

/* WFClientTask::dispatch, ClientSession::resolve. */
proctype Maker() {
  bool refused, mine;
  LOCK(I);
  d_step { refused = interrupted; entered = !interrupted };
  UNLOCK(I);
  if
  :: refused ->
     d_step { callbacks++; alive = false; cut = true };
     unref();
     goto done
  :: else
  fi;
  LOCK(H);
  arrive(AT_LOOK_UP, refused);
  if
  :: refused -> UNLOCK(H); end_session(); goto done
  :: else -> resolving = true; UNLOCK(H)
  fi;
  LOCK(D);
  listed = true;
  UNLOCK(D);
#ifndef MUT_NOBODY_TAKES_BACK
  /* ClientHub::take_back_if_over */
  LOCK(H);
  if
  :: resolving && asked ->
     LOCK(D);
     d_step { mine = listed; listed = false };
     UNLOCK(D);
     resolving = resolving && !mine
  :: else
  fi;
  UNLOCK(H);
  if
  :: mine -> end_session()
  :: else
  fi;
#endif
done:
  skip
}

/* Resolver::finish, ClientSession::resolved. */
proctype Resolver() {
  bool mine, refused;
  if
  :: listed
  :: over -> goto done
  :: goto done
  fi;
  LOCK(D);
  d_step { mine = listed; listed = false };
  UNLOCK(D);
  if
  :: mine ->
     LOCK(H);
     d_step { TOUCH; resolving = false };
     UNLOCK(H);
     line_up()
  :: else
  fi;
done:
  skip
}

/* ClientEndpoint::returned, connect_next; or the time limit of the wait. */
proctype Queue() {
  bool mine, refused, late;
  do
  :: over -> break
  :: break
  :: queued ->
     if
     :: late = true
     :: late = false
     fi;
     LOCK(E);
     d_step { mine = queued; queued = false };
     UNLOCK(E);
     if
     :: mine && late -> end_session()
     :: mine && !late ->
        /* ClientConnection::start: a session that shall end is taken, and ended there */
        LOCK(C);
        arrive(ON_CONNECTION, refused);
        d_step { TOUCH; carried = true; told = refused };
        UNLOCK(C)
     :: else
     fi
  od
}

/* ClientConnection on its poller's thread: the response, a failure that is tried again, or told. */
proctype Connection() {
  bool mine, refused, shall;
  do
  :: over -> break
  :: !silent -> silent = true
  :: carried && told ->
     LOCK(C);
     d_step { mine = carried && told; carried = carried && !mine };
     UNLOCK(C);
     if
     :: mine -> end_session()
     :: else
     fi
  :: carried && !silent ->
     LOCK(C);
     d_step { mine = carried; carried = false; told = false };
     UNLOCK(C);
     if
     :: mine && !retried ->
        /* ClientSession::failed */
        d_step { TOUCH; shall = asked; retried = true };
        if
        :: shall -> end_session()
        :: else -> line_up()
        fi
     :: mine -> end_session()
     :: else
     fi
  od
}

/* EarlyEnd::take_turn */
inline take_turn() {
#ifndef MUT_LOOKS_FIRST
  LOCK(X);
  d_step { USE; found = place };
  UNLOCK(X);
#endif
  mine = false;
  if
  :: found == AT_LOOK_UP ->
     LOCK(H);
     if
     :: resolving ->
        LOCK(D);
        d_step { mine = listed; listed = false };
        UNLOCK(D);
        resolving = resolving && !mine
     :: else
     fi;
     UNLOCK(H)
  :: found == IN_QUEUE ->
     LOCK(E);
#ifdef MUT_TURN_LEAVES_IT_IN_THE_QUEUE
     mine = queued;
#else
     d_step { mine = queued; queued = false };
#endif
     UNLOCK(E)
  :: found == ON_CONNECTION ->
     LOCK(C);
     d_step { told = told || carried };
#ifdef MUT_TURN_TAKES_FROM_CONNECTION
     mine = carried;
#endif
     UNLOCK(C)
  :: else
  fi;
  if
  :: mine -> end_session()
  :: else
  fi;
  unref()
}

/* InterruptScope::interrupt, WFClientTask::interrupt; then the turn on a handler. */
proctype Interrupter() {
  byte found = NOWHERE;
  bool mine;
#ifdef MUT_LOOKS_FIRST
  LOCK(X);
  found = place;
  UNLOCK(X);
#endif
  LOCK(I);
  interrupted = true;
  if
  :: entered ->
     entered = false;
     d_step { USE; TOUCH; users++ };
     asked = true;
     mine = true
  :: else
  fi;
  UNLOCK(I);
  if
  :: mine -> take_turn()
  :: else
  fi
}

init {
  atomic {
    run Maker();
    run Resolver();
    run Queue();
    run Connection();
    if
    :: run Interrupter()
    :: skip
    fi
  };
  /* Nothing else can happen. */
  timeout;
  over = true;
  (_nr_pr == 1);
  assert(I == NOBODY && H == NOBODY && D == NOBODY && E == NOBODY && C == NOBODY && X == NOBODY);
  assert(callbacks == 1 || !asked);
  assert(callbacks == 0 || freed);
  assert(!asked || cut)
}

/*
 * A client's session whose scope may be cancelled at any moment (SessionLocation, rule 9): a look-up,
 * a queue, a connection, each with an end of its own.
 *
 * The names are those of the code:
 *   hub_lock       the ClientHub lock, which guards resolving
 *   resolver_lock  the Resolver lock, which guards listed
 *   endpoint_lock  the ClientEndpoint lock, which guards queued
 *   channel_lock   the Channel lock, which guards carried; cancel_stored is ClientConnection::cancel_error_
 *   location_lock  the SessionLocation lock, which guards place
 *   reg            the registration of the task's series in its scope (CancelRegistration::state_)
 *   scope_ended    the scope has a reason, which is the end_reason() of the exchange. The mutex of the
 *                  scope is a leaf and guards nothing else but reg, so each use of it is one step
 *                  (scope.pml)
 *
 * One session. The look-up, the queue and the server may each go on at any moment, or never. Every
 * other access to shared data is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   MUT_x       breaks one rule: see the file `mutations`
 */

#define NOBODY 0
#define NOWHERE 0
#define AT_LOOK_UP 1
#define IN_QUEUE 2
#define ON_CONNECTION 3

mtype = { OUTSIDE, ENTERED, CALLED, HANDED_OVER };

byte hub_lock = NOBODY, resolver_lock = NOBODY, endpoint_lock = NOBODY;
byte channel_lock = NOBODY, location_lock = NOBODY;
bool scope_ended, resolving, listed, queued, carried, cancel_stored;
mtype reg = OUTSIDE;
byte place = NOWHERE;

/* Ghosts. */
bool alive = true;  /* the session exists */
bool freed;         /* the task is gone, and with it the exchange and the SessionLocation */
bool called, retried, silent, over;
byte callbacks;

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#define TOUCH assert(alive)
#define USE assert(!freed)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

/* The task is posted: its callback runs, and it is freed. */
inline post() {
  d_step { USE; RULE(reg == OUTSIDE); callbacks++; freed = true }
}

/* Under the lock of the place. */
inline arrive(where, refused) {
  LOCK(location_lock);
  d_step { USE; TOUCH; refused = scope_ended };
#ifdef MUT_ARRIVES_UNSEEN
  refused = false;
#endif
  if
  :: !refused -> place = where
  :: else
  fi;
  UNLOCK(location_lock)
}

inline leave() {
  LOCK(location_lock);
  d_step { USE; place = NOWHERE };
  UNLOCK(location_lock)
}

/* ClientSession::end, by the owner of the session; WFClientTask::ended. Needs the local posts. */
inline end_session() {
  d_step { TOUCH; assert(!resolving && !listed && !queued && !carried) };
  leave();
  d_step { USE; TOUCH; posts = reg != CALLED; reg = (posts -> OUTSIDE : HANDED_OVER) };
  alive = false;
#ifdef MUT_EXCHANGE_IGNORES_HAND_OVER
  posts = true; reg = OUTSIDE;
#endif
  if
  :: posts -> post()
  :: else
  fi
}

/* ClientSession::proceed, ClientEndpoint::enqueue. */
inline line_up() {
  leave();
#ifdef MUT_ARRIVES_BEFORE_THE_LOCK
  arrive(IN_QUEUE, refused);
  LOCK(endpoint_lock);
#else
  LOCK(endpoint_lock);
  arrive(IN_QUEUE, refused);
#endif
  if
  :: refused -> UNLOCK(endpoint_lock); end_session()
  :: else -> queued = true; UNLOCK(endpoint_lock)
  fi
}

/* WFClientTask::dispatch, ClientSession::resolve. */
proctype Maker() {
  bool refused, mine, posts;
  d_step { refused = scope_ended; reg = (scope_ended -> OUTSIDE : ENTERED) };
  if
  :: refused -> alive = false; post(); goto done
  :: else
  fi;
  LOCK(hub_lock);
  arrive(AT_LOOK_UP, refused);
  if
  :: refused -> UNLOCK(hub_lock); end_session(); goto done
  :: else -> resolving = true; UNLOCK(hub_lock)
  fi;
  LOCK(resolver_lock);
  listed = true;
  UNLOCK(resolver_lock);
#ifndef MUT_NOBODY_TAKES_BACK
  /* ClientHub::take_back_if_over */
  LOCK(hub_lock);
  if
  :: resolving && scope_ended ->
     LOCK(resolver_lock);
     d_step { mine = listed; listed = false };
     UNLOCK(resolver_lock);
     resolving = resolving && !mine
  :: else
  fi;
  UNLOCK(hub_lock);
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
  bool mine, refused, posts;
  if
  :: listed
  :: over -> goto done
  :: goto done
  fi;
  LOCK(resolver_lock);
  d_step { mine = listed; listed = false };
  UNLOCK(resolver_lock);
  if
  :: mine ->
     LOCK(hub_lock);
     d_step { TOUCH; resolving = false };
     UNLOCK(hub_lock);
     line_up()
  :: else
  fi;
done:
  skip
}

/* ClientEndpoint::returned, connect_next; or the time limit of the wait. */
proctype Queue() {
  bool mine, refused, late, posts;
  do
  :: over -> break
  :: break
  :: queued ->
     if
     :: late = true
     :: late = false
     fi;
     LOCK(endpoint_lock);
     d_step { mine = queued; queued = false };
     UNLOCK(endpoint_lock);
     if
     :: mine && late -> end_session()
     :: mine && !late ->
        LOCK(channel_lock);
        arrive(ON_CONNECTION, refused);
        if
        :: refused ->
           /* ClientConnection::send_request: its caller ends the session */
           UNLOCK(channel_lock);
           end_session()
        :: true ->
           /* ClientConnection::start: the connection takes the session, and ends it */
           d_step { TOUCH; carried = true; cancel_stored = refused };
           UNLOCK(channel_lock)
        fi
     :: else
     fi
  od
}

/* ClientConnection on its poller's thread: the response, a failure that is tried again, or a cancel. */
proctype Connection() {
  bool mine, refused, shall, posts;
  do
  :: over -> break
  :: !silent -> silent = true
  :: carried && cancel_stored ->
     LOCK(channel_lock);
     d_step { mine = carried && cancel_stored; carried = carried && !mine };
     UNLOCK(channel_lock);
     if
     :: mine -> end_session()
     :: else
     fi
  :: carried && !silent ->
     LOCK(channel_lock);
     d_step { mine = carried; carried = false; cancel_stored = false };
     UNLOCK(channel_lock);
     if
     :: mine && !retried ->
        /* ClientSession::failed */
        d_step { TOUCH; shall = scope_ended; retried = true };
        if
        :: shall -> end_session()
        :: else -> line_up()
        fi
     :: mine -> end_session()
     :: else
     fi
  od
}

/* CancelScope::cancel, WFClientTask::on_cancel, SessionLocation::cancel. */
proctype ScopeCanceller() {
  byte found = NOWHERE;
  bool mine, posts;
  scope_ended = true;
  d_step {
    if
    :: reg == ENTERED -> USE; reg = CALLED; called = true
    :: else
    fi
  };
  if
  :: called ->
     LOCK(location_lock);
     d_step { USE; found = place };
     UNLOCK(location_lock);
     if
     :: found == AT_LOOK_UP ->
        LOCK(hub_lock);
        if
        :: resolving ->
           LOCK(resolver_lock);
           d_step { mine = listed; listed = false };
           UNLOCK(resolver_lock);
           resolving = resolving && !mine
        :: else
        fi;
        UNLOCK(hub_lock)
     :: found == IN_QUEUE ->
        LOCK(endpoint_lock);
#ifdef MUT_CANCELLER_LEAVES_IT_IN_THE_QUEUE
        mine = queued;
#else
        d_step { mine = queued; queued = false };
#endif
        UNLOCK(endpoint_lock)
     :: found == ON_CONNECTION ->
        LOCK(channel_lock);
        d_step { cancel_stored = cancel_stored || carried };
#ifdef MUT_CANCELLER_TAKES_FROM_CONNECTION
        mine = carried;
#endif
        UNLOCK(channel_lock)
     :: else
     fi;
     if
     :: mine -> end_session(); RULE(!posts)
     :: else
     fi;
     d_step { USE; posts = reg == HANDED_OVER; reg = OUTSIDE };
     if
     :: posts -> post()
     :: else
     fi
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
    :: run ScopeCanceller()
    :: skip
    fi
  };
  /* Nothing else can happen. */
  timeout;
  over = true;
  (_nr_pr == 1);
  assert(hub_lock == NOBODY && resolver_lock == NOBODY && endpoint_lock == NOBODY);
  assert(channel_lock == NOBODY && location_lock == NOBODY);
  assert(callbacks <= 1 && (callbacks == 1 || !called));
  assert(callbacks == freed && (!freed || !alive));
  assert(callbacks == 0 || reg == OUTSIDE)
}

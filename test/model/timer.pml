/*
 * The protocol of the cancellable named timer: create, replace, start, cancel, expire, stop, dismiss.
 *
 * The names are those of docs/timer-protocol.md and of the code:
 *   timers_lock    the PollerTimers lock (one for each timer queue)
 *   registry_lock  the NameRegistry lock of the name's shard
 *   flag           the atomic on which start and cancel meet
 *   removed        guarded by timers_lock: the node has left the queue, or will never enter it
 *   stopped        guarded by timers_lock: nothing enters the queue any more
 *   linked         guarded by registry_lock: the node is in its name's list
 *
 * All timers of the model bear one name. A timer may be due at any moment after it was queued, or
 * never. Memory is sequentially consistent. An assertion and its ghost state belong to the step they
 * describe.
 *
 * Steps: by default every access to shared data is a step of its own. With -DMERGED, a stretch
 * marked SECTION runs without interruption (unless it has to wait for a mutex). Such a stretch takes
 * mutexes, touches what they guard, does at most one thing that others can see without them (the
 * exchange of flag, which comes after every lock and before every unlock), and lets mutexes go:
 * whatever others do meanwhile could as well have been done before or after it. That the data is
 * touched under its mutex alone is what the RULE assertions check. A SECTION ends with a plain
 * statement: spin would join one that ends with a d_step to what follows it.
 *
 * Locals are cleared when their value has no use any more, so that states differ in what matters.
 *
 * Parameters (-D):
 *   OWNERS        threads that create one timer each and then start it                  (2)
 *   TIMERS        timers in all; the callback of t creates and starts t + OWNERS   (OWNERS)
 *   CANCELLERS    1: cancel_by_name(name); 2: that and cancel_by_name(name, 1)          (2)
 *   WITH_REPLACE  owners create their timers with WF_TIMER_REPLACE
 *   QUEUES        pollers, each with its timers_lock and its queue; timer t uses t % QUEUES     (1)
 *   CHUNK         timers that a canceller takes in one critical section               (1)
 *   WITH_STOP     one thread stops every poller
 *   WITH_DISMISS  an owner may dismiss its timer instead of starting it
 *   WITH_DUE      a timer may be due when it is started: then it never enters the queue
 *   MUT_x         breaks one rule: see the file `mutations`
 *   MERGED        fewer, longer steps: see above
 *   NO_RULES      leaves out the assertions on how (which lock is held, what enters the queue) and
 *                 keeps those on what comes of it, so that a mutation is caught by its effect
 */

#ifndef OWNERS
#define OWNERS 2
#endif
#ifndef TIMERS
#define TIMERS OWNERS
#endif
#ifndef CANCELLERS
#define CANCELLERS 2
#endif
#ifndef QUEUES
#define QUEUES 1
#endif
#ifndef CHUNK
#define CHUNK 1
#endif
#ifdef WITH_STOP
#define STOPPERS 1
#else
#define STOPPERS 0
#endif
#ifdef WITH_REPLACE
#define REPLACERS OWNERS
#else
#define REPLACERS 0
#endif

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#ifdef MERGED
#define SECTION atomic
#define SUBSECTION
#else
#define SECTION
#define SUBSECTION atomic
#endif

#define NOBODY 0
#define UNLIMITED 255
#define NO_TIMER 255
#define BIT_OF(t) (1 << (t))
#define QUEUE_OF(t) ((t) % QUEUES)
#define timers_lock_of(t) timers_lock[QUEUE_OF(t)]
#if QUEUES == 1
#define HOLDS_TIMERS_LOCK (timers_lock[0] == _pid)
#else
#define HOLDS_TIMERS_LOCK (timers_lock[0] == _pid || timers_lock[1] == _pid)
#endif

mtype = { NONE, SUCCESS, ABORTED, ECANCELED, DUE };

/* Mutexes: the process that holds it, or NOBODY. */
byte timers_lock[QUEUES];
byte registry_lock;

/* The poller and the shard. A queue is the set of its nodes: any of them may be the next due. */
bool stopped[QUEUES];
byte creation_counter;
chan names_list = [TIMERS] of { byte };

/* The timer nodes. */
bool flag[TIMERS];
bool queued[TIMERS];
bool removed[TIMERS];
bool linked[TIMERS];
byte created_at[TIMERS];
mtype outcome[TIMERS];
bool posted[TIMERS];

/* Ghost state: read by assertions and by the end of the run only. */
bool alive[TIMERS];
bool dispatched[TIMERS];
bool dismissed[TIMERS];
bool called_back[TIMERS];
bool counted[TIMERS];
bool replaced[TIMERS];
short uncounted;
byte in_hand;
byte ended;

#include "operations.pml"

/* The part of create that follows the link: ends those of the name that were created before t. */
inline replace_older(t) {
  run Canceller(UNLIMITED, t);
  replaced[t]
}

proctype Owner(byte t) {
  bool old, was_linked;
  mtype verdict = NONE;
#if QUEUES == 1 && !defined(MUT_REPLACE_BEFORE_LINK)
  /* The owners are alike: the first to create is called 0, the next 1. */
  creation_counter >= t;
#endif
#ifdef MUT_REPLACE_BEFORE_LINK
  created_at[t] = creation_counter;
  replace_older(t);
#endif
  create(t);
#if defined(WITH_REPLACE) && !defined(MUT_REPLACE_BEFORE_LINK)
  replace_older(t);
#endif
#ifdef WITH_DISMISS
  if
  :: start(t)
  :: dismiss(t)
  fi;
#else
  start(t);
#endif
  d_step { old = false; was_linked = false; verdict = NONE; ended++ }
}

/*
 * Expiry. A batch holds any of the queued timers; an empty one ends the run of the poller, so that
 * timers which never fall due are covered too.
 */
proctype Poller(byte queue) {
  bool was_linked;
  mtype verdict = NONE;
  byte batch, next;
  do
  :: SECTION {
       lock(timers_lock[queue]);
       if
       :: stopped[queue]
       :: else ->
          SUBSECTION {
            for (next : 0 .. (TIMERS - 1)) {
              if
              :: QUEUE_OF(next) == queue && queued[next] -> pop(next)
              :: true
              fi
            }
          }
       fi;
#ifndef MUT_EXPIRE_HOLDS_P
       unlock(timers_lock[queue])
#endif
     };
     next = 0;
     if
     :: batch == 0 -> break
     :: else -> settle_batch(SUCCESS)
     fi;
#ifdef MUT_EXPIRE_HOLDS_P
     unlock(timers_lock[queue])
#endif
  od;
#ifdef MUT_EXPIRE_HOLDS_P
  unlock(timers_lock[queue]);
#endif
  next = 0;
  d_step { was_linked = false; verdict = NONE; ended++ }
}

/* The stop of every poller: closes the queue, drains it, settles what was in it. */
proctype Stopper() {
  bool was_linked;
  mtype verdict = NONE;
  byte batch, next, queue;
  do
  :: queue == QUEUES -> break
  :: else ->
#ifndef MUT_STOP_DRAINS_FIRST
     SECTION {
       lock(timers_lock[queue]);
       d_step { RULE(timers_lock[queue] == _pid); stopped[queue] = true };
       unlock(timers_lock[queue])
     };
#endif
     SECTION {
       lock(timers_lock[queue]);
       d_step {
         for (next : 0 .. (TIMERS - 1)) {
           if
           :: QUEUE_OF(next) == queue && queued[next] -> pop(next)
           :: else
           fi
         }
       };
       unlock(timers_lock[queue])
     };
     settle_batch(ABORTED);
#ifdef MUT_STOP_DRAINS_FIRST
     lock(timers_lock[queue]);
     stopped[queue] = true;
     unlock(timers_lock[queue]);
#endif
     queue++
  od;
  queue = 0;
  d_step { was_linked = false; verdict = NONE; next = 0; ended++ }
}

/* The timers linked now, as a set. */
inline linked_set(set) {
  set = 0;
  for (next : 0 .. (TIMERS - 1)) {
    if
    :: linked[next] -> set = set | BIT_OF(next)
    :: else
    fi
  };
  next = 0
}

/* Is there one more timer to take in this hold of the NameRegistry lock? It is `head`, the oldest. */
inline look_at_head() {
  d_step {
    RULE(registry_lock == _pid);
    found = false;
    if
    :: took < CHUNK && count < max && len(names_list) > 0 ->
       names_list?<head>;
       TOUCH(head);
#ifdef MUT_NO_CUTOFF
       found = true
#else
       found = created_at[head] < cutoff
#endif
    :: else
    fi
  }
}

/*
 * Takes the timer `head` under the NameRegistry lock: unlinks it and meets start. Needs the locals of
 * Canceller.
 */
inline unlink_and_meet_start() {
#ifdef MUT_FLAG_BEFORE_UNLINK
  d_step { TOUCH(head); old = flag[head]; flag[head] = true };
  d_step { unlink(head); counted[head] = true }
#else
  d_step { unlink(head); counted[head] = true };
#ifdef MUT_FLAG_NOT_ATOMIC
  d_step { TOUCH(head); old = flag[head] };
  d_step { TOUCH(head); flag[head] = true }
#else
  d_step { TOUCH(head); old = flag[head]; flag[head] = true }
#endif
#endif
}

/* Start came first: the thread that removes the timer from the queue completes it. */
inline take_out_of_queue() {
#ifdef MUT_CANCEL_RELEASES_B
  unlock(registry_lock);
#endif
  SECTION {
#ifndef MUT_CANCEL_WITHOUT_P
    lock(timers_lock_of(head));
#endif
    d_step { RULE(timers_lock_of(head) == _pid); TOUCH(head); was_removed = removed[head] };
    if
    :: !was_removed ->
       d_step {
         RULE(timers_lock_of(head) == _pid);
         TOUCH(head);
         assert(queued[head]);
         queued[head] = false;
         removed[head] = true
       };
       mine = mine | BIT_OF(head)
#ifdef MUT_CANCEL_IGNORES_REMOVED
    :: else -> mine = mine | BIT_OF(head)
#else
    :: else
#endif
    fi;
#ifndef MUT_CANCEL_WITHOUT_P
    unlock(timers_lock_of(head))
#endif
  };
#ifdef MUT_CANCEL_RELEASES_B
  lock_B()
#endif
}

/* Which timers a call may take: those that are linked when it begins, and older than its own. */
inline begin_cancel() {
  if
#ifdef MUT_REPLACE_TAKES_NEWER
  :: own != NO_TIMER -> cutoff = creation_counter
#elif defined(MUT_REPLACE_TAKES_ITSELF)
  :: own != NO_TIMER -> cutoff = created_at[own] + 1
#else
  :: own != NO_TIMER -> cutoff = created_at[own]
#endif
  :: else -> cutoff = creation_counter
  fi;
  linked_set(linked_when_begun)
}

/* cancel_by_name(name, max); with `own`, the timer that replaces the others of its name. */
proctype Canceller(byte max; byte own) {
  bool old, was_removed, begun, found;
  byte cutoff, count, took, head, mine, next;
  byte linked_when_begun, linked_at_end;
  do
  :: SECTION {
       lock_B();
       if
       :: begun
       :: else -> d_step { begin_cancel() }
       fi;
       look_at_head();
       begun = true
     };
     do
     :: !found -> break
     :: else ->
        SECTION {
          assert(linked_when_begun & BIT_OF(head));
          assert(own == NO_TIMER || created_at[head] < created_at[own]);
          unlink_and_meet_start();
          took++
        };
        if
        :: old -> take_out_of_queue()
#ifdef MUT_CANCEL_COMPLETES_UNSTARTED
        :: else -> mine = mine | BIT_OF(head)
#else
        :: else
#endif
        fi;
#ifdef MUT_COUNT_ONLY_OWNED
        if
        :: was_removed
        :: else -> count++
        fi;
#else
        count++;
#endif
        look_at_head()
     od;
     unlock(registry_lock);
#ifdef MUT_CANCEL_TOUCHES_REMOVED
     if
     :: was_removed -> TOUCH(head)
     :: else
     fi;
#endif
     do
     :: mine == 0 -> break
     :: else -> take_any(mine, next); complete(next, ECANCELED)
     od;
     if
     :: took < CHUNK || count == max -> break
     :: else -> d_step { took = 0; head = 0; next = 0; old = false; was_removed = false }
     fi
  od;
  assert(count <= max);
  d_step {
    linked_set(linked_at_end);
    if
    :: own == NO_TIMER -> assert(count == max || (linked_at_end & linked_when_begun) == 0)
    :: else -> replaced[own] = true
    fi;
    uncounted = uncounted - count;
    ended++;
    begun = false; found = false; old = false; was_removed = false;
    cutoff = 0; count = 0; took = 0; head = 0; next = 0;
    linked_when_begun = 0; linked_at_end = 0
  }
}

/* The handler that runs the callback of t, as soon as t is posted, and then frees it. */
proctype Handler(byte t) {
  bool old, was_linked;
  mtype verdict = NONE;
end_idle:
  d_step {
    posted[t] ->
    TOUCH(t);
    assert(dispatched[t] && !dismissed[t]);
    assert(!called_back[t]);
    assert((outcome[t] == ECANCELED) == counted[t]);
    called_back[t] = true
  };
#if TIMERS > OWNERS
  if
  :: t + OWNERS < TIMERS -> create(t + OWNERS); start(t + OWNERS)
  :: else
  fi;
#endif
  d_step { release_memory(t); in_hand--; old = false; was_linked = false; verdict = NONE }
}

#define STILL_WAITING(t) (alive[t] && dispatched[t] && outcome[t] == NONE && queued[t] && \
                          !removed[t] && linked[t] && !counted[t] && !stopped[QUEUE_OF(t)])
#define CALLED_BACK(t)   (!alive[t] && dispatched[t] && !dismissed[t] && called_back[t])
#define DISMISSED(t)     (!alive[t] && !dispatched[t] && dismissed[t] && !called_back[t])
#define NEVER_CREATED(t) (!alive[t] && !dispatched[t] && !dismissed[t])

/* Starts everything; when everything has ended, nothing may be unaccounted for. */
init {
  byte i, waiting;
  atomic {
    for (i : 0 .. (TIMERS - 1)) { outcome[i] = NONE; run Handler(i) }
    for (i : 0 .. (OWNERS - 1)) { run Owner(i) }
    for (i : 0 .. (QUEUES - 1)) { run Poller(i) }
    run Canceller(UNLIMITED, NO_TIMER);
#if CANCELLERS > 1
    run Canceller(1, NO_TIMER);
#endif
#ifdef WITH_STOP
    run Stopper();
#endif
    i = 0
  };
  ended == OWNERS + QUEUES + CANCELLERS + REPLACERS + STOPPERS && in_hand == 0;
  d_step {
    waiting = 0;
    for (i : 0 .. (TIMERS - 1)) {
      assert(STILL_WAITING(i) || CALLED_BACK(i) || DISMISSED(i) || NEVER_CREATED(i));
      if
      :: alive[i] -> waiting++
      :: else
      fi
    };
    assert(uncounted == 0);
    assert(len(names_list) == waiting);
#ifdef WITH_REPLACE
    assert(waiting <= 1);
#endif
    assert(registry_lock == NOBODY)
  }
}

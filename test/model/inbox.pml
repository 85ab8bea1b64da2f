/*
 * How items reach a poller: threads post them without a lock, the leader is woken, takes and runs
 * them, and closes the intake in its last round.
 *
 * The names are those of the code:
 *   intake, closed    Poller::intake_ (Intake), in the order of the posts
 *   posted            Poller::posted_
 *   rounds_lock, stopped, asked, made  Poller: rounds_mutex_, stopped_, rounds_asked_, rounds_made_
 *   pending, written  EpollMultiplexer: wake_pending_; its eventfd has something to report
 *
 * Thread p posts the items p * EACH to p * EACH + EACH - 1. The first item that runs posts one
 * more, to which number EXTRA belongs. A round may run out of time after any item. Each access to an
 * atomic word is one step; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   EACH         how many items each of the two threads posts
 *   WITH_STOP    the poller is stopped meanwhile
 *   WITH_LOOKER  a thread asks whether the poller is settled, and then for a round, at any moment
 *   MUT_x        breaks one rule: see the file `mutations`
 */

#ifndef EACH
#define EACH 2
#endif
#define POSTERS 2
#define EXTRA (POSTERS * EACH)
#define ITEMS (EXTRA + 1)

chan intake = [ITEMS] of { byte };
chan posted = [ITEMS] of { byte };
bool closed, rounds_lock, stopped, pending, written;
byte asked, made;

/* Ghosts. */
byte work;               /* items that were posted and have not run */
byte next[POSTERS + 1];  /* how many items of each thread have run */
bool extra_posted, ended, stop_returned;

#define LOCK_ROUNDS atomic { !rounds_lock -> rounds_lock = true }
#define UNLOCK_ROUNDS rounds_lock = false

/* Multiplexer::wake() */
inline wake(already) {
  atomic { already = pending; pending = true };
  if
  :: !already -> written = true
  :: else
  fi;
  already = false
}

/* Poller::post(). A post that is refused must have reason to be. */
inline post(i, taken, already) {
#ifdef MUT_WAKES_BEFORE_IT_PUSHES
  wake(already);
#endif
  atomic {
    if
    :: closed -> assert(stopped); taken = false
    :: else -> intake ! i; work++; taken = true
    fi
  };
#ifndef MUT_WAKES_BEFORE_IT_PUSHES
  if
  :: taken -> wake(already)
  :: else
  fi
#endif
}

active [POSTERS] proctype Poster() {
  byte n;
  bool taken, already, too_late;
  do
  :: n < EACH ->
     too_late = stop_returned;
     post(_pid * EACH + n, taken, already);
     assert(!(taken && too_late));
     if
     :: taken -> n++
     :: else -> break
     fi
  :: else -> break
  od
}

inline run_item(i) {
  atomic {
    if
    :: i == EXTRA -> next[POSTERS]++
    :: else -> assert(i % EACH == next[i / EACH]); next[i / EACH]++
    fi;
    work--
  };
  if
  :: !extra_posted -> extra_posted = true; post(EXTRA, taken, already)
  :: else
  fi
}

/* Intake::take() */
inline take() {
  if
  :: len(intake) == 0
  :: len(intake) > 0 ->
     atomic {
       do
       :: len(intake) > 0 -> intake ? item; posted ! item
       :: else -> break
       od;
       item = 0
     }
  fi
}

/* Poller::run_posted(). Sets `leaves` if it leaves items to the next round. */
inline run_posted() {
  do
  :: take();
     if
     :: !last -> break
     :: else ->
#if defined(MUT_ENDS_OPEN)
        break
#elif defined(MUT_CLOSES_OVER_AN_ITEM)
        closed = true; break
#else
        /* Intake::close() */
        atomic {
          if
          :: len(intake) == 0 -> closed = true; break
          :: else
          fi
        }
#endif
     fi
  od;
  do
  :: len(posted) == 0 -> break
  :: len(posted) > 0 ->
     posted ? item;
     run_item(item);
     item = 0;
     if
     :: !last && len(posted) > 0 ->
#ifdef MUT_REST_GOES_BEHIND
        atomic {
          do
          :: len(posted) > 0 -> posted ? item; intake ! item
          :: else -> break
          od;
          item = 0
        };
#endif
#ifndef MUT_REST_FORGETS_TO_WAKE
        wake(already);
#endif
#ifndef MUT_ROUND_IGNORES_REST
        leaves = true;
#endif
        break
     :: true
     fi
  od
}

active proctype Leader() {
  byte item, round;
  bool last, leaves, taken, already;
end_wait:
  do
  :: written ->
     /* Multiplexer::wait() */
     written = false;
#ifndef MUT_CLEARS_AFTER_IT_TAKES
     pending = false;
#endif
     /* Poller::handle_wake_up() */
#ifdef MUT_COUNTS_AFTER_IT_TAKES
     last = stopped;
     run_posted();
     LOCK_ROUNDS; asked++; round = asked; UNLOCK_ROUNDS;
#else
     LOCK_ROUNDS;
     last = stopped;
     if
     :: last || made != asked || len(intake) > 0 -> asked++; round = asked
     :: else -> round = 0
     fi;
     UNLOCK_ROUNDS;
     if
     :: round > 0 -> run_posted()
     :: else
     fi;
#endif
#ifdef MUT_CLEARS_AFTER_IT_TAKES
     pending = false;
#endif
     /* Poller::end_round() */
     if
     :: leaves -> leaves = false
     :: !leaves && round > 0 -> LOCK_ROUNDS; made = round; UNLOCK_ROUNDS
     :: else
     fi;
     round = 0;
     if
     :: last -> break
     :: else
     fi
  od;
  ended = true
}

#ifdef WITH_LOOKER
/* Poller::settled(), then ask_for_round() and wait_for_round(). */
active proctype Looker() {
  byte wanted;
  bool already;
#ifndef MUT_SETTLED_WITHOUT_LOCK
  LOCK_ROUNDS;
#endif
  if
  :: asked == made ->
     atomic {
       if
       :: len(intake) == 0 -> assert(work == 0)
       :: else
       fi
     }
  :: else
  fi;
#ifndef MUT_SETTLED_WITHOUT_LOCK
  UNLOCK_ROUNDS;
#endif
  LOCK_ROUNDS;
  if
  :: stopped -> wanted = 0
  :: else -> asked++; wanted = asked
  fi;
  UNLOCK_ROUNDS;
  if
  :: wanted > 0 -> wake(already)
  :: else
  fi;
  made >= wanted
}
#endif

#ifdef WITH_STOP
active proctype Stopper() {
  bool already;
  LOCK_ROUNDS;
  stopped = true;
  UNLOCK_ROUNDS;
  wake(already);
  ended;
  stop_returned = true
}
#endif

/* When nothing else can happen, everything that was posted has run. */
active proctype Judge() {
  timeout;
  assert(work == 0 && asked == made);
  assert(closed == stopped);
  assert(closed || next[0] + next[1] + next[POSTERS] == ITEMS)
}

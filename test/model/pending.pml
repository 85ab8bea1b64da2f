/*
 * The pieces that a thread has still to do, which others may give away (classes PendingWork, ExposedWork).
 *
 *   state    atomic: OWNED, EXPOSED or TAKEN
 *   turn     in how many pieces user code has run
 *   pieces   how many are left in the list
 *   mutex    that of ExposedWork
 *   listed   guarded by mutex: the work is in the list
 *   giving   guarded by mutex: the watch gives away what it has taken
 *   awake    atomic: the watch looks again without being woken
 *
 * The owner begins its pieces. In some of them user code runs, in one of which it adds a piece. It may
 * run until others have taken what is left. The watch looks while something is exposed, and gives away
 * what it finds held up; for some pieces there may be no memory. A look that finds nothing exposed is
 * followed by an attempt to sleep.
 *
 * Each access to an atomic is one step, and so is what is done to the list under the mutex or by its
 * owner alone; to give pieces away is two. Memory is sequentially consistent. MUT_x breaks one rule: see
 * the file `mutations`.
 */

#define PIECES 4
#define OWNED 0
#define EXPOSED 1
#define TAKEN 2

byte state;
byte turn;
byte pieces = PIECES - 1;     /* one more is added */
byte mutex;
bool listed;
bool giving;
bool awake;

/* Ghost state. */
byte begun;                   /* pieces that the owner has begun or that were posted for others */
bool moving;                  /* the watch uses the list of pieces */
bool added;
bool alive = true;            /* the work exists; its memory is that of a stack */
byte idle_looks;              /* looks that found nothing exposed, since the watch last tried to sleep */

inline lock() { d_step { mutex == 0 -> mutex = _pid + 1 } }
inline unlock() { d_step { assert(mutex == _pid + 1); mutex = 0 } }

/* PendingWork::take_back */
inline take_back() {
  if
  :: state != OWNED ->
#ifdef MUT_TAKE_BACK_IS_TWO_STEPS
    before = state;
    state = OWNED;
#else
    d_step { before = state; state = OWNED };
#endif
    if
#ifndef MUT_NO_WAIT_FOR_GIVER
    :: before == TAKEN -> d_step { mutex == 0 && !giving -> mutex = _pid + 1 }; unlock()
#endif
    :: else
    fi
  :: else
  fi;
  assert(!moving)
}

/* StallWatch::begin_to_watch */
inline begin_to_watch() {
  if
  :: !awake -> awake = true
  :: else
  fi
}

/* PendingWork::expose */
inline expose() {
  if
  :: pieces > 0 ->
    if
    :: !listed -> lock(); listed = true; unlock()
    :: else
    fi;
#ifdef MUT_READS_AWAKE_FIRST
    begin_to_watch();
    state = EXPOSED
#else
    state = EXPOSED;
#ifdef MUT_WAKES_ONCE
    if
    :: !has_woken -> has_woken = true; begin_to_watch()
    :: else
    fi
#else
    begin_to_watch()
#endif
#endif
  :: else
  fi
}

active proctype Owner() {
  byte before;
#ifdef MUT_WAKES_ONCE
  bool has_woken;
#endif
  do
  :: take_back();
    if
    :: pieces == 0 -> break
    :: else -> d_step { pieces--; begun++ }
    fi;
    if
    :: turn++;                /* PendingWork::open: user code runs */
      expose();
      if
      :: !added ->            /* PendingWork::add */
        added = true;
        take_back();
        pieces++;
#ifdef MUT_ADDED_IS_NOT_EXPOSED
        if
        :: before != OWNED -> expose()
        :: else
        fi;
#else
        expose();
#endif
        assert(state != OWNED)  /* whatever user code does now, the piece does not wait for it */
      :: true
      fi;
      if
      :: state != OWNED -> state == TAKEN  /* user code goes on until all pieces have begun */
      :: true
      fi
    :: true                   /* the task waits for something: no user code runs */
    fi
  od;
  if
  :: listed ->
#ifndef MUT_NOT_UNLISTED
    lock(); listed = false; unlock()
#endif
  :: else
  fi;
  assert(begun == PIECES - 1 + added);
  alive = false
}

/* ExposedWork::look */
inline look() {
  lock();
  if
  :: listed ->              /* ExposedWork::take_stuck */
    assert(alive);
    now = turn;
    if
    :: state != EXPOSED -> seen = 0
    :: else ->
      if
      :: seen == now ->     /* held up */
#ifdef MUT_TAKE_IS_TWO_STEPS
        taken = state == EXPOSED;
        if
        :: taken -> state = TAKEN
        :: else
        fi
#else
        d_step { if :: state == EXPOSED -> state = TAKEN; taken = true :: else fi }
#endif
      :: seen == now        /* only waits for a processor */
      :: seen != now -> seen = now
      fi
    fi
  :: else
  fi;
  if
  :: taken ->
    giving = true;
    unlock();
    assert(alive);
    moving = true;
    if
    :: d_step { begun = begun + pieces; pieces = 0 }
    :: d_step { begun = begun + pieces - 1; pieces = 1 }  /* no memory for one */
    fi;
    moving = false;
    taken = false;
    lock();
    giving = false
  :: else
  fi;
#ifdef MUT_LOOKS_WHILE_LISTED
  d_step { found = listed; idle_looks = (state == EXPOSED -> 0 : idle_looks + 1) };
#else
  d_step { found = listed && state == EXPOSED; idle_looks = (found -> 0 : idle_looks + 1) };
#endif
  unlock();
  assert(idle_looks <= 2)
}

/* StallWatch::run */
active proctype Watch() {
  byte seen;                  /* the turn at the last look; 0: it was not exposed */
  byte now;
  bool taken;
  bool found;                 /* the last look has found something exposed */
  do
  :: awake ->
    look();
    if
    :: found
    :: else ->
      awake = false;
      idle_looks = 0;
#ifndef MUT_SLEEPS_WITHOUT_A_LOOK
      look();
      if
      :: found -> awake = true
      :: else
      fi
#endif
    fi
  :: !alive -> break          /* the watch sleeps until it is stopped */
  od
}

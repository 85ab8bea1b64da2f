/*
 * The pieces that a thread has still to do, which others may give away (classes PendingWork, ExposedWork).
 *
 *   state    atomic: OWNED, EXPOSED or TAKEN
 *   turn     in how many pieces user code has run
 *   pieces   how many are left in the list
 *   mutex    that of ExposedWork
 *   listed   guarded by mutex: the work is in the list
 *   giving   guarded by mutex: the watch gives away what it has taken
 *
 * The owner begins its pieces. In some of them user code runs, in one of which it adds a piece. The watch
 * looks LOOKS times, and gives away what it finds held up; for some pieces there may be no memory.
 *
 * Each access to an atomic is one step, and so is what is done to the list under the mutex or by its
 * owner alone; to give pieces away is two. Memory is sequentially consistent. MUT_x breaks one rule: see
 * the file `mutations`.
 */

#define PIECES 4
#define LOOKS 5
#define OWNED 0
#define EXPOSED 1
#define TAKEN 2

byte state;
byte turn;
byte pieces = PIECES - 1;     /* one more is added */
byte mutex;
bool listed;
bool giving;

/* Ghost state. */
byte begun;                   /* pieces that the owner has begun or that were posted for others */
bool moving;                  /* the watch uses the list of pieces */
bool added;
bool alive = true;            /* the work exists; its memory is that of a stack */

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

/* PendingWork::expose */
inline expose() {
  if
  :: pieces > 0 ->
    if
    :: !listed -> lock(); listed = true; unlock()
    :: else
    fi;
    state = EXPOSED
  :: else
  fi
}

active proctype Owner() {
  byte before;
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

active proctype Watch() {
  byte seen;                  /* the turn at the last look; 0: it was not exposed */
  byte now;
  byte looks;
  bool taken;
  do
  :: looks == LOOKS -> break
  :: else ->
    looks++;
    lock();
    if
    :: listed ->              /* ExposedWork::take_stuck */
      assert(alive);
      now = turn;
      if
      :: state != EXPOSED -> seen = 0
      :: else ->
        if
        :: seen == now ->
#ifdef MUT_TAKE_IS_TWO_STEPS
          taken = state == EXPOSED;
          if
          :: taken -> state = TAKEN
          :: else
          fi
#else
          d_step { if :: state == EXPOSED -> state = TAKEN; taken = true :: else fi }
#endif
        :: else -> seen = now
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
    unlock()
  od
}

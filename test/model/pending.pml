/*
 * The pieces that a thread has still to do, which others may take (classes PendingWork, ExposedWork).
 *
 *   state    atomic: OWNED, EXPOSED or TAKEN
 *   turn     how often the work was exposed
 *   pieces   how many are left in the list; the next one is number PIECES - pieces
 *   mutex    that of ExposedWork
 *   listed   guarded by mutex: the work is in the list
 *   alive    the work exists; its memory is that of a stack
 *
 * The owner begins all pieces, and some run user code, in which it adds a piece once. The watch looks
 * LOOKS times. What it takes is begun by other threads, which is one step here.
 *
 * Each access to an atomic is one step, and so is what is done to the list under a mutex or by its
 * owner alone, but for moving pieces, which is two. Memory is sequentially consistent. MUT_x breaks one
 * rule: see the file `mutations`.
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
bool alive = true;

/* Ghost state. */
byte begun;                   /* pieces that were begun by the owner or the watch */
bool moving;                  /* the watch moves pieces out of the list */
bool added;
byte ended;                   /* processes */

inline end_one() {
  d_step { ended++; assert(ended < 2 || begun == PIECES) }
}

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
#ifndef MUT_NO_WAIT_FOR_TAKER
    :: before == TAKEN -> lock(); unlock()
#endif
    :: else
    fi
  :: else
  fi
}

/* PendingWork::expose */
inline expose() {
  if
  :: state == OWNED && pieces > 0 ->
    turn++;
    state = EXPOSED;
    if
    :: !listed -> lock(); listed = true; unlock()
    :: else
    fi
  :: else
  fi
}

/* ExposedWork::take_stuck, where the owner is in the same piece as before */
inline take() {
#ifdef MUT_TAKE_IS_TWO_STEPS
  if
  :: state == EXPOSED -> state = TAKEN; taken = true
  :: else
  fi;
#else
  d_step { if :: state == EXPOSED -> state = TAKEN; taken = true :: else fi };
#endif
  if
  :: taken ->
    assert(alive);
    moving = true;
    found = pieces;
    pieces = 0;
    moving = false;
    taken = false
  :: else
  fi
}

active proctype Owner() {
  byte before;
  byte was;
  do
  :: take_back();
    assert(!moving);
    if
    :: pieces == 0 -> break
    :: else -> d_step { pieces--; begun++ }
    fi;
    if
    :: expose();              /* user code runs */
      if
      :: !added ->            /* PendingWork::add */
        added = true;
        was = state;
        take_back();
        assert(!moving);
        pieces++;
        if
        :: was != OWNED -> state = EXPOSED
        :: else
        fi
      :: true
      fi
    :: true                   /* the task goes on waiting: none runs */
    fi
  od;
  if
  :: !added -> begun++        /* the piece that was to be added */
  :: else
  fi;
#ifndef MUT_NOT_UNLISTED
  if
  :: listed -> lock(); listed = false; unlock()
  :: else
  fi;
#endif
  alive = false;
  end_one()
}

active proctype Watch() {
  byte seen;                  /* the turn at the last look; 0: it was not exposed */
  byte now;
  byte found;
  byte looks;
  bool taken;
  do
  :: looks == LOOKS -> break
  :: else ->
    looks++;
    lock();
    found = 0;
    if
    :: listed ->
      assert(alive);
      now = turn;
      if
      :: state != EXPOSED -> seen = 0
      :: else ->
        if
        :: seen == now -> take()
        :: else -> seen = now
        fi
      fi
    :: else
    fi;
    unlock();
    begun = begun + found     /* by other threads */
  od;
  end_one()
}

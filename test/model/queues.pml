/*
 * How computations reach the queues of a ComputePool: posts without a lock, the list of the queues
 * that take turns, and the end. How sleeping workers learn of a listed queue is handoff.pml's.
 *
 * The names are those of the code:
 *   pool_lock  WorkerPool::mutex_
 *   intake[q]  ComputeQueue::intake_ (Intake), in order of posting
 *   closed[q]  whether that intake is closed
 *   items[q]   ComputeQueue::items_, guarded by pool_lock
 *   listed[q]  ComputeQueue::listed_. Changed under pool_lock, read without it
 *   list       the listed queues, guarded by pool_lock
 *   kept[w]    what worker w has taken beside the item that it runs, in its WorkQueue; one item at most
 *   returned   WorkerPool::returned_, guarded by pool_lock
 *
 * Two threads post, a queue of their choice for each item. Item 0 posts item CHILD while it runs. Every
 * access to shared data that is not guarded by pool_lock is a step of its own; memory is sequentially
 * consistent, as the operations on intake_ and listed_ are.
 *
 * Parameters (-D):
 *   POSTED      how many items the two threads post, all but one of them the first thread
 *   WITH_STOP   one thread stops the pool meanwhile
 *   MUT_x       breaks one rule: see the file `mutations`
 */

#ifndef POSTED
#define POSTED 3
#endif
#define CHILD POSTED
#define ITEMS (POSTED + 1)
#define QUEUES 2
#define WORKERS 2
#define BIT(i) (1 << (i))
#define ALL (BIT(ITEMS) - 1)

byte pool_lock;
chan intake[QUEUES] = [ITEMS] of { byte };
chan items[QUEUES] = [ITEMS] of { byte };
chan list = [QUEUES] of { byte };
chan kept[WORKERS] = [1] of { byte };
chan returned = [WORKERS] of { byte };
bool closed[QUEUES], listed[QUEUES];
byte idle, live = WORKERS;
bool stopping, ran_first;

/* Ghosts. */
byte done;      /* the items that have run or were refused */
byte begun;
byte place[2];  /* the queue of items 0 and 1, plus one; 0: refused */

#define LOCK atomic { pool_lock == 0 -> pool_lock = 1 }
#define UNLOCK pool_lock = 0
#define WORK (len(list) > 0 || len(returned) > 0)

inline end_item(i) {
  assert((done & BIT(i)) == 0);
  done = done | BIT(i)
}

/* Intake::take(): the intake of queue q to items[q]. */
inline take(q) {
  atomic {
    do
    :: len(intake[q]) > 0 -> intake[q] ? moved; items[q] ! moved
    :: else -> moved = 0; break
    od
  }
}

/* ComputePool::list() */
inline list_queue(q) {
  take(q);
  atomic {
    if
    :: !listed[q] && len(items[q]) > 0 -> listed[q] = true; list ! q
    :: else
    fi
  }
}

/* ComputePool::post_to_own() */
inline post(i, q) {
#ifdef MUT_READ_LISTED_BEFORE_PUSH
  seen = listed[q];
#endif
  atomic {
    if
    :: closed[q] -> assert(stopping && i != CHILD); end_item(i); refused = true
    :: else -> intake[q] ! i; if :: i < 2 -> place[i] = q + 1 :: else fi
    fi
  };
#ifndef MUT_READ_LISTED_BEFORE_PUSH
  seen = listed[q];
#endif
  if
  :: refused || seen
  :: !refused -> LOCK; list_queue(q); UNLOCK /* also if the thread has left many items */
  fi;
  refused = false
}

proctype Poster(byte from; byte to) {
  byte i = from;
  byte q, moved;
  bool refused, seen;
  do
  :: i < to ->
     if :: q = 0 :: i < POSTED - 1 -> q = 1 fi;  /* by symmetry the other thread posts to the first queue */
     post(i, q);
     i++
  :: else -> break
  od
}

/* Items 0 and 1, if one thread posts both, begin in order if they are in one queue. An item begins
   when no other worker can take it any more. */
inline begin_item() {
  assert(mine != 1 || POSTED == 2 || place[0] != place[1] || (begun & BIT(0)) != 0);
  begun = begun | BIT(mine)
}

/* ComputePool::next(), into `taken` */
inline next() {
  atomic { list ? q; items[q] ? taken };
  if :: len(items[q]) == 0 -> take(q) :: len(items[q]) > 0 fi;
  if
  :: len(items[q]) > 0 -> list ! q
  :: len(items[q]) == 0 ->
#ifdef MUT_UNLISTED_AFTER_LOOK
     take(q);
     atomic { listed[q] = len(items[q]) > 0; if :: listed[q] -> list ! q :: else fi }
#elif defined(MUT_NO_SECOND_LOOK_AT_INTAKE)
     listed[q] = false
#else
     listed[q] = false;
     list_queue(q)
#endif
  fi
}

/* WorkerPool::take_next(), into `taken` */
inline take_next() {
  if
  :: len(returned) > 0 -> returned ? taken
  :: len(returned) == 0 -> next()
  fi
}

/* WorkerPool::return_items(): another worker has begun to look for work. */
inline return_items(w) {
#ifndef MUT_OTHERS_KEEP_ITEMS
  atomic {
    if
    :: len(kept[w]) > 0 -> kept[w] ? taken; returned ! taken
    :: else
    fi
  }
#else
  skip
#endif
}

/* ComputePool::close(), into `ends` */
inline close_all() {
  ends = true;
  q = 0;
  do
  :: q < QUEUES ->
     if
     :: len(intake[q]) > 0 -> list_queue(q); ends = false
     :: else
     fi;
     q++
  :: else -> break
  od;
  q = 0;
  do
  :: ends && q < QUEUES ->
     atomic {
       if
       :: len(intake[q]) == 0 -> closed[q] = true
       :: len(intake[q]) > 0 -> ends = false
       fi
     };
     if :: ends -> q++ :: else -> break fi
  :: else -> break
  od;
  if
  :: !ends && q < QUEUES ->
#ifndef MUT_STAYS_HALF_CLOSED
     closed[0] = false;
     closed[1] = false;
#endif
     list_queue(q)
  :: else
  fi
}

proctype Worker(byte me) {
  byte q, mine, taken, moved;
  bool refused, seen, ends;
  LOCK;
  do
  :: return_items(1 - me);
     if :: WORK :: !WORK -> goto no_work fi;
     take_next();
     atomic { mine = taken; begin_item() };
     if
     :: WORK && idle + 1 == live -> take_next(); kept[me] ! taken
     :: true
     fi;
     UNLOCK;
     do
     :: if
        :: mine == 0 -> ran_first = true; if :: q = 0 :: q = 1 fi; post(CHILD, q)
        :: mine != 0
        fi;
        end_item(mine);
        atomic {  /* WorkQueue::pop() */
          if
          :: len(kept[me]) > 0 -> kept[me] ? mine; begin_item()
          :: else -> break
          fi
        }
     od;
     LOCK;
     goto next_turn;
no_work:
     ends = stopping && idle + 1 == live;
     if
     :: ends && idle == 0 -> close_all()
     :: else
     fi;
     if :: ends -> break :: else fi;
     idle++;
     UNLOCK;
end_sleep:
     atomic { pool_lock == 0 && (WORK || (stopping && idle == live)) -> pool_lock = 1; idle-- };
next_turn:
     skip
  od;
  live--;
  UNLOCK
}

/* When nothing else can happen, all must have run. */
active proctype Judge() {
  timeout;
  assert(done == ALL || (!ran_first && done == (ALL & ~BIT(CHILD))));
  assert(len(intake[0]) == 0 && len(intake[1]) == 0 && !WORK)
#ifdef WITH_STOP
  ;
  assert(live == 0 && closed[0] && closed[1])
#endif
}

#ifdef WITH_STOP
active proctype Stopper() {
  LOCK;
  stopping = true;
  UNLOCK
}
#endif

init {
  atomic {
    run Poster(0, POSTED - 1);
    run Poster(POSTED - 1, POSTED);
    run Worker(0);
    run Worker(1)
  }
}

/*
 * How items reach the workers of a pool (WorkerPool): posts without a lock, the queues of the
 * workers, stealing, sleeping, napping and waking, the supervisor, growing, spare workers, and the
 * end.
 *
 * The names are those of the code:
 *   pool_lock         WorkerPool::mutex_
 *   intake, closed    HandlerPool::intake_ (Intake)
 *   queue             HandlerPool::queue_ and WorkerPool::returned_, guarded by pool_lock
 *   first, end, slot  WorkQueue of each worker. A push of `range_` is one word, so both change in one
 *                     step, and only if they are what was read (compare-and-swap)
 *   waking, napping, idle, live, unattended  members of WorkerPool
 *   watched           watched_: REST, GROWTH or LOOKS
 *   stalled           Worker::stalled of each worker; AWAKE does not count it
 *   written           Worker::written_off of each worker; WORKING does not count it
 *   gone              the worker has ended, or has not been started. live does not count it
 *   lazy              not worth_a_thread(1). WorkPace may change its mind in every critical section
 *   fresh             whether shares differs from seen_shares
 *
 * Item 1 blocks until all others have run, as a callback may. Not in WITH_STOP: a pool that ends may
 * have to grow for such an item, and the model does not grow while it ends. Every access to shared
 * data that is not guarded by pool_lock is a step of its own; memory is sequentially consistent, as
 * the operations on intake and unattended are. A sleeping worker wakes only if it is notified, or, if
 * it is spare, once by itself. A worker that naps waits in the same place, so that a notification may
 * reach it instead of a sleeper, or it wakes by itself.
 *
 * Parameters (-D):
 *   ITEMS, WORKERS   how many; the names of two workers are built in
 *   EARLY            how many looks may come while something else can happen
 *   WANTED           how many workers are configured. All exist when the model begins, as after a
 *                    wait that was announced. If there are fewer than WORKERS, the pool can grow
 *   EAGER            each item is worth a thread, and is posted without pool_lock
 *   WITH_NAPS        workers may nap
 *   WITH_STOP        one thread stops the pool meanwhile
 *   MUT_x            breaks one rule: see the file `mutations`
 */

#ifndef ITEMS
#define ITEMS 3
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef WANTED
#define WANTED WORKERS
#endif
#if WANTED < WORKERS
#define MOST_BARREN 6
#else
#define MOST_BARREN 4
#endif
#define BIT(i) (1 << (i))
#define ALL (BIT(ITEMS) - 1)

byte pool_lock;
byte intake, queue, ran;
bool closed;
byte first[WORKERS], end[WORKERS], slot[WORKERS * ITEMS];
bool fresh[WORKERS], running[WORKERS], stalled[WORKERS], sleeping[WORKERS];
bool written[WORKERS], gone[WORKERS], tired[WORKERS];
byte idle, live = WORKERS;
byte watched;
bool waking, napping, unattended, lazy, stopping, took;

/* Ghosts. */
byte barren;  /* looks since the last item ran, in which nothing else could happen */
byte early;   /* looks that came while something else could happen */
bool replaced[WORKERS];  /* the worker was written off in the share that it runs */

#define LOCK atomic { pool_lock == 0 -> pool_lock = 1 }
#define UNLOCK pool_lock = 0
#define AWAKE (live - idle - stalled[0] - stalled[1])
#define WORKING (live - idle - written[0] - written[1])
#define SURPLUS (live - written[0] - written[1] > WANTED)
#define WORK (queue != 0 || intake != 0)
/* may_wake_one(), room() */
#define MAY_WAKE (idle > 0 && WORKING < WANTED)
#define ROOM (WANTED < WORKERS && live - idle < WORKERS)
#define REST 0
#define GROWTH 1
#define LOOKS 2

#ifdef MUT_AWAKE_IS_ENOUGH
#define ATTENDED (waking || napping || AWAKE > 0)
#else
#define ATTENDED                                                     \
  (waking || napping || (!MAY_WAKE && (watched != REST || !ROOM)) || \
   (MAY_WAKE && watched == LOOKS && AWAKE > 0 && lazy))
#endif

/* claim_wake() */
inline claim() {
  atomic {
    wakes = false;
#ifndef EAGER
    if :: lazy = true :: lazy = false fi
#endif
  }
  do
  :: atomic {
       if
       :: WORK && !waking && !napping ->
          if
          :: MAY_WAKE && (AWAKE == 0 || !lazy) -> waking = true; wakes = true
          :: MAY_WAKE && AWAKE > 0 && lazy -> waking = true; wakes = true  /* many wait */
          :: MAY_WAKE && AWAKE > 0 && lazy -> watched = LOOKS
#ifndef MUT_GROWTH_UNWATCHED
          :: !MAY_WAKE && ROOM -> if :: watched == REST -> watched = GROWTH :: else fi
#else
          :: !MAY_WAKE && ROOM
#endif
          :: !MAY_WAKE && !ROOM
          fi
       :: else
       fi;
       unattends = !ATTENDED;
       if :: unattends == unattended -> break :: else fi
     };
     unattended = unattends;
#ifdef MUT_NO_SECOND_LOOK
     break
#else
     if :: !unattends || !WORK -> break :: else fi
#endif
  od
}

/* Outside pool_lock: notify() */
inline notify_one() {
  atomic {
    if
    :: !wakes
    :: wakes && sleeping[0] -> sleeping[0] = false
    :: wakes && sleeping[1] -> sleeping[1] = false
    :: wakes && !sleeping[0] && !sleeping[1]
    fi;
    wakes = false
  }
}

inline notify_all() {
  sleeping[0] = false; sleeping[1] = false
}

inline count_run(i) {
  assert((ran & BIT(i)) == 0);
  ran = ran | BIT(i);
  barren = 0
}

#ifdef WITH_STOP
#define MAY_END(i) true
#else
#define MAY_END(i) ((i) != 1 || (ran | BIT(1)) == ALL)
#endif
inline run_item(i) {
  atomic { MAY_END(i) -> count_run(i) }
}

/* gather() */
inline gather() {
#ifdef MUT_TAKE_IN_TWO_STEPS
  queue = queue | intake;
  intake = 0
#else
  atomic { queue = queue | intake; intake = 0 }
#endif
}

proctype Poster(byte from; byte to) {
  byte i = from;
  bool wakes, unattends, seen;
  do
  :: i < to ->
#ifdef MUT_READ_BEFORE_PUSH
     seen = unattended;
#endif
     atomic {
       if
       :: closed -> count_run(i)
       :: else -> intake = intake | BIT(i)
       fi
     };
#ifndef MUT_READ_BEFORE_PUSH
     seen = unattended;
#endif
     if
     :: seen -> LOCK; claim(); UNLOCK; notify_one()
     :: else
     fi;
     i++
#ifndef EAGER
  :: i < to ->  /* HandlerPool::append() */
     LOCK;
     if
     :: closed -> UNLOCK; count_run(i)
     :: else ->
#ifndef MUT_APPEND_UNCLAIMED
        gather();
        queue = queue | BIT(i);
        claim();
        UNLOCK;
        notify_one()
#else
        gather();
        queue = queue | BIT(i);
        UNLOCK
#endif
     fi;
     i++
#endif
  :: else -> break
  od
}

/* WorkQueue::take_back(): the newer half of the items of worker w, or all. Under pool_lock. */
inline take_back(w, all) {
  atomic { r_first = first[w]; r_end = end[w] };
  do
  :: r_first == r_end -> break
  :: else ->
     atomic {
#ifndef MUT_STEAL_WITHOUT_COMPARE
       if
       :: first[w] != r_first || end[w] != r_end -> r_first = first[w]; r_end = end[w]
       :: else ->
#endif
          keep = r_first + ((all) -> 0 : (r_end - r_first) / 2);
          end[w] = keep;
#ifdef MUT_STEAL_WITHOUT_COMPARE
          first[w] = r_first;
#endif
          do
          :: keep < r_end -> queue = queue | BIT(slot[(w) * ITEMS + keep]); keep++
          :: else -> break
          od;
          break
#ifndef MUT_STEAL_WITHOUT_COMPARE
       fi
#endif
     }
  od
}

/* The next item of `queue` into `item`. */
inline take_next() {
  item = 0;
  do
  :: (queue & BIT(item)) != 0 -> queue = queue & ~BIT(item); break
  :: else -> item++
  od
}

/* take_share(), after gather(): the first item into `mine`, and others into the worker's queue. */
inline fill_queue() {
  atomic {
    take_next();
    mine = item;
    assert(first[me] == end[me]);
    first[me] = 0;
    end[me] = 0;
    do
    :: queue != 0 -> take_next(); slot[me * ITEMS + end[me]] = item; end[me] = end[me] + 1
    :: break
    od;
    fresh[me] = true;
    running[me] = true;
    assert((running[0] && !replaced[0]) + (running[1] && !replaced[1]) <= WANTED);
    took = true;
#ifndef MUT_SHARE_UNWATCHED
    if :: end[me] > 0 -> watched = LOOKS :: else fi
#endif
  }
}

/* WorkQueue::pop(): into `mine`, or NONE. */
#define NONE ITEMS
inline pop() {
  atomic { r_first = first[me]; r_end = end[me] };
  do
  :: r_first == r_end -> mine = NONE; break
  :: else ->
     atomic {
#ifdef MUT_POP_WITHOUT_COMPARE
       first[me] = r_first + 1; end[me] = r_end; mine = slot[me * ITEMS + r_first]; break
#else
       if
       :: first[me] == r_first && end[me] == r_end ->
          first[me] = r_first + 1; mine = slot[me * ITEMS + r_first]; break
       :: else -> r_first = first[me]; r_end = end[me]
       fi
#endif
     }
  od
}

/* finished() */
inline see_end() {
  atomic {
    ends = stopping && !WORK && idle + 1 == live;
#ifdef MUT_CLOSE_UNSEEN
    skip
  };
  atomic {
    if :: ends && idle == 0 -> closed = true :: else fi
#else
    if :: ends && idle == 0 -> closed = true :: else fi
#endif
  }
}

proctype Worker(byte me) {
  byte mine, item, r_first, r_end, keep;
  bool wakes, unattends, ends, naps, leaves;
  LOCK;
  do
  :: if  /* leaves_work_to_others() */
#ifndef MUT_SPARES_WORK
     :: WORKING > WANTED -> leaves = true
     :: WORKING <= WANTED && lazy && AWAKE > 1 -> leaves = true
     :: WORKING <= WANTED ->
#else
     :: lazy && AWAKE > 1 -> leaves = true
     :: true ->
#endif
        leaves = false;
        gather();
        if
        :: queue == 0 -> take_back((1 - me), false)
        :: true -> take_back((1 - me), true)  /* takes_one() */
        :: queue != 0
        :: queue == 0
        fi
     fi;
     if
     :: queue != 0 && !leaves ->
        fill_queue();
        claim();
        UNLOCK;
        notify_one();
        do
        :: run_item(mine);
           pop();
           if :: mine == NONE -> break :: else fi
        od;
        LOCK;
        atomic {
          running[me] = false;
          stalled[me] = false;
#ifndef MUT_WRITTEN_OFF_FOR_EVER
          written[me] = false;
#endif
          replaced[me] = false
        }
     :: else ->
        see_end();
        if :: ends -> break :: else fi;
        /* wait_for_work() */
        if
        :: SURPLUS && !stopping ->  /* leaves() */
           atomic { gone[me] = true; live-- };
           claim();
           UNLOCK;
           notify_one();
end_gone:
           !gone[me];
           LOCK;
           goto next
        :: true
        fi;
        naps = false;
#ifdef WITH_NAPS
        if :: !napping && !stopping && !leaves -> naps = true; napping = true :: true fi;
#endif
        idle++;
#ifdef MUT_LEAVES_TO_NOBODY
        if :: leaves -> wakes = false :: else -> claim() fi;
#elif !defined(MUT_SLEEP_UNANNOUNCED)
        claim();
#endif
        leaves = leaves && !wakes;
        wakes = false;
        if
        :: WORK && !leaves
        :: (!WORK || leaves) && naps ->
           atomic { sleeping[me] = true; UNLOCK };
           if
           :: !sleeping[me]
           :: sleeping[me] = false
           fi;
           LOCK
        :: (!WORK || leaves) && !naps ->
           atomic { sleeping[me] = true; UNLOCK };
end_sleep:
           if
           :: !sleeping[me]
           :: atomic {
                SURPLUS && sleeping[me] && !tired[me] ->
                tired[me] = true;
                sleeping[me] = false
              }
           fi;
           LOCK
        fi;
        atomic {
          idle--;
#ifndef MUT_NAP_GOES_ON
          if :: naps -> napping = false :: else fi;
#endif
#ifdef MUT_WAKING_GOES_ON
          skip
#elif defined(MUT_NAP_LEAVES_WAKING)
          if :: naps :: else -> waking = false fi
#else
          waking = false
#endif
        };
        see_end();
        if :: ends -> break :: else fi
     fi;
next:
     skip
  od;
  notify_all();
  live--;
  claim();
  UNLOCK;
  notify_one()
}

/* grow(), if starves */
inline grow() {
  atomic {
    if
    :: starves ->
       if
#ifndef MUT_GROWS_WITHOUT_WRITING_OFF
       :: live - written[0] - written[1] >= WANTED ->
          if
          :: running[0] && !written[0] -> written[0] = true; replaced[0] = true; stalled[0] = true
          :: running[1] && !written[1] -> written[1] = true; replaced[1] = true; stalled[1] = true
          :: else
          fi
#endif
       :: else
       fi;
       if
       :: !MAY_WAKE && gone[0] -> gone[0] = false; live++
       :: !MAY_WAKE && gone[1] -> gone[1] = false; live++
       :: else
       fi
    :: else
    fi
  }
}

inline look() {
  LOCK;
  w = 0;
  do
  :: w < WORKERS ->
#ifndef MUT_STUCK_ITEMS_STAY
     if :: watched == LOOKS && running[w] && !fresh[w] -> take_back(w, true) :: else fi;
#endif
     atomic {
       if
       :: watched == LOOKS ->
          if :: running[w] && !fresh[w] -> stalled[w] = true :: else fi;
          fresh[w] = false
       :: else
       fi
     };
     w++
  :: else -> break
  od;
  atomic {
    starves = WORK && !took && !MAY_WAKE && ROOM;
    if :: starves && watched == LOOKS -> starves = false :: true fi;  /* not long enough yet */
    if
#ifndef MUT_LOOKS_END_EARLY
    :: (MAY_WAKE && WORK) || first[0] != end[0] || first[1] != end[1] -> watched = LOOKS
    :: else ->
#else
    :: true ->
#endif
       if
       :: watched = (WORK && !MAY_WAKE && ROOM -> GROWTH : REST)
       :: took && watched == LOOKS
       fi
    fi;
    pace_stuck = WORK && !took;
    took = false
  };
  grow();
  claim();
  if
  :: pace_stuck && MAY_WAKE && !waking && !napping -> waking = true; wakes = true
  :: else
  fi;
  UNLOCK;
  notify_one()
}

/* The supervisor. It also judges: when nothing else can happen, all must have run, or a look helps. */
active proctype Supervisor() {
  byte w, r_first, r_end, keep;
  bool wakes, unattends, pace_stuck, starves;
  do
  :: atomic { timeout && watched != REST -> barren++; assert(barren < MOST_BARREN) };
     look()
  :: atomic { watched != REST && early < EARLY -> early++ };
     look()
  :: atomic {
       timeout && watched == REST ->
       assert(ran == ALL && !WORK);
       assert(!written[0] && !written[1]);
#ifdef WITH_STOP
       assert(live == 0 && closed);
#endif
       break
     }
  od
}

#ifdef WITH_STOP
active proctype Stopper() {
  LOCK;
  atomic { stopping = true; notify_all() };
  UNLOCK
}
#endif

init {
  atomic {
    byte w0;
    run Poster(0, 2);
    run Poster(2, ITEMS);
    for (w0 : 0 .. WORKERS - 1) { run Worker(w0) }
  }
}

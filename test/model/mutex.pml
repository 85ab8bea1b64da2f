/*
 * The mutex and the condition variable of the library's own locks: FutexMutex and FutexCondition.
 *
 * The names are those of the code:
 *   word, FREE, HELD, CONTENDED   FutexMutex::word_ and its values
 *   sequence, waiters             FutexCondition::sequence_, waiters_
 *   futex_wait, futex_wake_one    futex(2): the comparison and the sleep are one step of the kernel
 *
 * TAKERS lock and unlock ROUNDS times. CONSUMERS wait for an item each, and PRODUCERS make one each and
 * notify, before or after they unlock. With ALL, one producer makes items for all of them. Each access
 * to a word is one step; memory is sequentially consistent. An attempt to lock may fail any number of
 * times, which changes nothing, so a thread either finds the mutex free or gives up.
 *
 * Parameters (-D):
 *   TAKERS, ROUNDS, CONSUMERS, PRODUCERS
 *   ALL          notify_all() instead of notify_one()
 *   NOISE        how often a thread may wake without a reason; it then also counts as a deadline that
 *                has passed
 *   MUT_x        breaks one rule: see the file `mutations`
 */

#ifndef TAKERS
#define TAKERS 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef CONSUMERS
#define CONSUMERS 0
#endif
#ifndef PRODUCERS
#define PRODUCERS 0
#endif
#ifndef NOISE
#define NOISE 1
#endif
#define THREADS (TAKERS + CONSUMERS + PRODUCERS)  /* at most four */

#define FREE 0
#define HELD 1
#define CONTENDED 2

byte word = FREE;
byte sequence, waiters;
/* The threads that sleep at the address of the word and of the sequence, a bit for each. */
byte in_mutex, in_condition;
byte noise = NOISE;

/* Ghosts: how many threads hold the mutex, and what it guards. */
byte inside, items, consumed;

#define ME (1 << me)

inline sleep(queue) {
  if
  :: !(queue & ME)
  :: atomic { noise > 0 && (queue & ME) -> noise--; queue = queue - ME }
  fi
}

/* Wakes any one of those that sleep. */
inline futex_wake_one(queue) {
  atomic {
    if
    :: queue & 1 -> queue = queue - 1
    :: queue & 2 -> queue = queue - 2
    :: queue & 4 -> queue = queue - 4
    :: queue & 8 -> queue = queue - 8
    :: queue == 0
    fi
  }
}

inline lock() {
  if
  :: atomic { word == FREE -> word = HELD }
  :: true ->
     do
#ifdef MUT_MUTEX_WAKES_AS_HELD
     :: atomic { word == FREE -> word = HELD; break }
     :: atomic { word != FREE -> word = CONTENDED };
#else
     :: atomic { before = word; word = CONTENDED };
#ifdef MUT_MUTEX_TAKES_WHAT_IS_HELD
        if :: before != CONTENDED -> break :: else fi;
#else
        if :: before == FREE -> break :: else fi;
#endif
#endif
#ifdef MUT_MUTEX_SLEEPS_UNSEEN
        in_mutex = in_mutex | ME;
#else
        atomic { if :: word == CONTENDED -> in_mutex = in_mutex | ME :: else fi };
#endif
        sleep(in_mutex)
     od
  fi;
  atomic { inside++; assert(inside == 1); before = FREE }
}

inline unlock() {
  inside--;
  atomic { before = word; word = FREE };
#ifndef MUT_MUTEX_WAKES_NOBODY
  if
  :: before == CONTENDED -> futex_wake_one(in_mutex)
  :: else
  fi;
#endif
  before = FREE
}

inline wait() {
#ifdef MUT_CONDITION_COUNTS_LATE
  seen = sequence;
  unlock();
  waiters++;
#else
  waiters++;
#ifdef MUT_CONDITION_READS_LATE
  unlock();
  seen = sequence;
#else
  seen = sequence;
  unlock();
#endif
#endif
  atomic { if :: sequence == seen -> in_condition = in_condition | ME :: else fi; seen = 0 };
  sleep(in_condition);
  lock();
  waiters--
}

inline notify() {
  if
  :: waiters == 0
  :: else ->
#ifndef MUT_CONDITION_KEEPS_SEQUENCE
     sequence++;
#endif
#ifdef ALL
     in_condition = 0
#else
     futex_wake_one(in_condition)
#endif
  fi
}

proctype Taker(byte me) {
  byte before, round;
  do
  :: round < ROUNDS -> lock(); unlock(); round++
  :: else -> break
  od
}

proctype Consumer(byte me) {
  byte before, seen;
  lock();
  do
  :: items == 0 -> wait()
  :: else -> break
  od;
  items--;
  consumed++;
  unlock()
}

proctype Producer(byte me) {
  byte before;
  bool early;
  if :: early = true :: early = false fi;
  lock();
#ifdef ALL
  items = items + CONSUMERS;
#else
  items++;
#endif
  if :: early -> notify() :: else fi;
  unlock();
  if :: !early -> notify() :: else fi
}

init {
  byte thread;
  atomic {
    do
    :: thread < TAKERS -> run Taker(thread); thread++
    :: thread >= TAKERS && thread < TAKERS + CONSUMERS -> run Consumer(thread); thread++
    :: thread >= TAKERS + CONSUMERS && thread < THREADS -> run Producer(thread); thread++
    :: thread == THREADS -> break
    od
  };
  (_nr_pr == 1);
  assert(inside == 0 && word == FREE && waiters == 0 && consumed == CONSUMERS)
}

/*
 * The tasks of a series that are not dispatched yet (class SeriesQueue).
 *
 *   word         atomic: NOTHING, the number of a task that is queued alone, or LIST
 *   mutex        the mutex of the queue
 *   list, size   guarded by mutex: the tasks in the list, the first at list[0]
 *
 * Two threads push and one pops, until all four tasks are popped. Thread A pushes tasks 1 and 2 to the
 * back. Thread B pushes task 3 to the front, waits until task 1 was pushed, and pushes task 4 to the back.
 *
 * Each access to the word is one step. What is done to the list alone, under the mutex, is one step.
 * Memory is sequentially consistent. MUT_x breaks one rule: see the file `mutations`.
 */

#define TASKS 4
#define NOTHING 0
#define LIST 9

byte word;
byte mutex;
byte list[TASKS];
byte size;

/* Ghost state. */
byte pushed;              /* how many pushes have returned */
byte popped;
bool was_popped[TASKS + 1];
bool first_pushed;        /* task 1 */
bool front_pushed;        /* task 3 */

inline lock() { d_step { mutex == 0 -> mutex = _pid } }
inline unlock() { assert(mutex == _pid); mutex = 0 }

inline append(task) {
  d_step { assert(mutex == _pid && size < TASKS); list[size] = task; size++ }
}

inline prepend(task) {
  d_step {
    assert(mutex == _pid && size < TASKS);
    k = size;
    do
    :: k == 0 -> break
    :: else -> list[k] = list[k - 1]; k--
    od;
    list[0] = task;
    size++;
    k = 0
  }
}

/* SeriesQueue::push_alone */
inline push_alone(task) {
#ifdef MUT_PUSH_IS_TWO_STEPS
  alone = word == NOTHING;
  if
  :: alone -> word = task
  :: else
  fi
#else
  d_step {
    alone = word == NOTHING;
    word = (alone -> task : word)
  }
#endif
}

inline use_list() {
  do
  :: seen = word;
     if
     :: seen == LIST -> break
     :: else ->
#if defined(MUT_LIST_IGNORES_POP)
        word = LIST;
        moved = true;
#elif defined(MUT_WORD_IS_FREE_MEANWHILE)
        d_step { moved = word == seen; word = (moved -> NOTHING : word) };
        if
        :: moved -> word = LIST
        :: else
        fi;
#else
        d_step { moved = word == seen; word = (moved -> LIST : word) };
#endif
        if
        :: moved && seen != NOTHING -> append(seen); break
        :: moved && seen == NOTHING -> break
        :: else
        fi
     fi
  od;
  skip;  /* a d_step cannot be where a loop ends */
  d_step { seen = 0; moved = false }
}

inline push(task, to_front) {
  push_alone(task);
  if
  :: alone
  :: else ->
     lock();
     use_list();
     if
     :: to_front -> prepend(task)
     :: else -> append(task)
     fi;
     unlock()
  fi;
  d_step { alone = false; pushed++ }
}

proctype ThreadA() {
  byte seen, k;
  bool alone, moved;
  push(1, false);
  first_pushed = true;
  push(2, false)
}

proctype ThreadB() {
  byte seen, k;
  bool alone, moved;
  push(3, true);
  front_pushed = true;
  (first_pushed);
  push(4, false)
}

/* The thread that runs the series. */
proctype Series() {
  byte task, k;
  bool has_some, has_front, alone;
  do
  :: popped == TASKS -> break
  :: else ->
     d_step {
       has_some = pushed > popped;
       has_front = front_pushed && !was_popped[3];
       task = word
     };
     if
     :: task == NOTHING
     :: task != NOTHING && task != LIST ->
        d_step {
          alone = word == task;
          word = (alone -> NOTHING : word)
        };
        assert(alone || word == LIST);
        task = (alone -> task : LIST)
     :: else
     fi;
     if
     :: task == LIST ->
        lock();
        d_step {
          task = (size > 0 -> list[0] : NOTHING);
          size = (size > 0 -> size - 1 : 0);
          k = 0;
          do
          :: k == size -> break
          :: else -> list[k] = list[k + 1]; k++
          od;
          k = 0
        };
#ifdef MUT_LIST_IS_LEFT_LATE
        alone = size == 0;
        unlock();
        word = (alone -> NOTHING : word);
#else
        word = (size == 0 -> NOTHING : word);
        unlock();
#endif
     :: else
     fi;
     d_step {
       assert(mutex != 0 || (word == LIST) == (size > 0));
       assert(!has_some || task != NOTHING);
       assert(!has_front || task == 3);
       if
       :: task != NOTHING ->
          assert(!was_popped[task]);
          assert(task != 2 && task != 4 || was_popped[1]);
          assert(task != 4 || was_popped[3]);
          was_popped[task] = true;
          popped++
       :: else
       fi;
       has_some = false; has_front = false; alone = false; task = 0
     }
  od
}

init {
  atomic {
    run ThreadA();
    run ThreadB();
    run Series()
  };
  (_nr_pr == 1);
  assert(popped == TASKS && word == NOTHING && size == 0 && mutex == 0)
}

/*
 * The tasks of a series that are not dispatched yet (class SeriesQueue).
 *
 *   word         atomic: the number of a task that is queued alone, LIST, or 0; plus AHEAD if something
 *                outside `ready` comes before what is in it
 *   ready        of the thread that pops: tasks that it has taken from the list or put back
 *   mutex        the mutex of the queue
 *   list, ahead  guarded by mutex: the tasks in the list, and how many of them come before `ready`
 *
 * Two threads push and one pops, until all four tasks are popped. Thread A pushes tasks 1 and 2 to the
 * back. Thread B pushes task 3 to the front, waits until task 1 was pushed, and pushes task 4 to the back.
 * When the third thread has popped task 1 or task 4, it puts that back once.
 *
 * Each access to the word is one step. What is done to the list alone, under the mutex, is one step.
 * Memory is sequentially consistent. MUT_x breaks one rule: see the file `mutations`.
 */

#define TASKS 4
#define NOTHING 0
#define LIST 8
#define AHEAD 16

#define has_list(w) ((w & LIST) != 0)
#define is_ahead(w) ((w & AHEAD) != 0)

typedef Tasks {
  byte at[TASKS];
  byte size
};

byte word;
Tasks ready;
byte mutex;
Tasks list;
byte ahead;

/* Ghost state. */
byte pushed;              /* how many pushes have returned */
byte popped;
bool was_popped[TASKS + 1];
bool first_pushed;        /* task 1 */
bool front_begun;         /* the push of task 3 */
bool front_pushed;
bool was_put_back[TASKS + 1];
byte put_back;            /* the task that was put back since the last pop, or 0 */
bool over_front;          /* it was put back after the push of task 3 had returned */
bool beside_front;        /* it was put back while task 3 was pushed, and either may come first */

inline lock() { d_step { mutex == 0 -> mutex = _pid } }
inline unlock() { assert(mutex == _pid); mutex = 0 }

inline append(tasks, task) {
  d_step { assert(tasks.size < TASKS); tasks.at[tasks.size] = task; tasks.size++ }
}

inline prepend(tasks, task) {
  d_step {
    assert(tasks.size < TASKS);
    k = tasks.size;
    do
    :: k == 0 -> break
    :: else -> tasks.at[k] = tasks.at[k - 1]; k--
    od;
    tasks.at[0] = task;
    tasks.size++;
    k = 0
  }
}

inline remove_first(tasks, task) {
  d_step {
    assert(tasks.size > 0);
    task = tasks.at[0];
    tasks.size--;
    k = 0;
    do
    :: k == tasks.size -> break
    :: else -> tasks.at[k] = tasks.at[k + 1]; k++
    od;
    tasks.at[k] = 0;
    k = 0
  }
}

/* SeriesQueue::push_alone */
inline push_alone(task, mark) {
#ifdef MUT_PUSH_IS_TWO_STEPS
  alone = word == NOTHING;
  if
  :: alone -> word = task | mark
  :: else
  fi
#else
  d_step {
    alone = word == NOTHING;
    word = (alone -> task | mark : word)
  }
#endif
}

inline use_list() {
  do
  :: seen = word;
     if
     :: has_list(seen) -> break
     :: else ->
#if defined(MUT_LIST_IGNORES_POP)
        word = LIST | (seen & AHEAD);
        moved = true;
#elif defined(MUT_WORD_IS_FREE_MEANWHILE)
        d_step { moved = word == seen; word = (moved -> NOTHING : word) };
        if
        :: moved -> word = LIST | (seen & AHEAD)
        :: else
        fi;
#elif defined(MUT_LIST_FORGETS_THE_FRONT)
        d_step { moved = word == seen; word = (moved -> LIST : word); seen = seen & ~AHEAD };
#else
        d_step { moved = word == seen; word = (moved -> LIST | (seen & AHEAD) : word) };
#endif
        if
        :: moved && seen != NOTHING ->
           append(list, seen & ~AHEAD);
           ahead = (is_ahead(seen) -> 1 : 0);
           break
        :: moved && seen == NOTHING -> break
        :: else
        fi
     fi
  od;
  skip;  /* a d_step cannot be where a loop ends */
  d_step { seen = 0; moved = false }
}

inline push_back(task) {
  push_alone(task, 0);
  if
  :: alone
  :: else ->
     lock();
     use_list();
     append(list, task);
     unlock()
  fi;
  alone = false
}

inline push_front(task) {
  push_alone(task, AHEAD);
  if
  :: alone
  :: else ->
     lock();
     use_list();
     prepend(list, task);
     ahead++;
     word = LIST | AHEAD;
     unlock()
  fi;
  alone = false
}

proctype ThreadA() {
  byte seen, k;
  bool alone, moved;
  push_back(1);
  d_step { pushed++; first_pushed = true };
  push_back(2);
  pushed++
}

proctype ThreadB() {
  byte seen, k;
  bool alone, moved;
  front_begun = true;
  push_front(3);
  d_step { pushed++; front_pushed = true };
  (first_pushed);
  push_back(4);
  pushed++
}

/* The thread that runs the series. */
proctype Series() {
  byte task, k, seen;
  bool has_some, has_front, alone, moved;
  do
  :: popped == TASKS -> break
  :: else ->
     /* SeriesQueue::pop */
     d_step {
       has_some = pushed > popped;
       has_front = front_pushed && !was_popped[3] && !over_front && !beside_front;
       seen = word
     };
     if
#ifdef MUT_TAKEN_COME_FIRST
     :: ready.size > 0 -> remove_first(ready, task)
     :: ready.size == 0 && seen == NOTHING -> task = NOTHING
     :: ready.size == 0 && seen != NOTHING ->
#else
     :: !is_ahead(seen) && ready.size > 0 -> remove_first(ready, task)
     :: !is_ahead(seen) && ready.size == 0 && seen == NOTHING -> task = NOTHING
     :: is_ahead(seen) || ready.size == 0 && seen != NOTHING ->
#endif
        if
        :: !has_list(seen) ->
           d_step {
             alone = word == seen;
             word = (alone -> NOTHING : word)
           };
           assert(alone || has_list(word));
           task = seen & ~AHEAD
        :: else
        fi;
        if
        :: alone
        :: else ->
           /* SeriesQueue::pop_from_list */
           lock();
           if
           :: ready.size == 0 ->
              d_step {
                k = 0;
                do
                :: k == list.size -> break
                :: else -> ready.at[k] = list.at[k]; list.at[k] = 0; k++
                od;
                k = 0;
                ready.size = list.size;
                list.size = 0;
                ahead = 0
              };
#ifdef MUT_LIST_IS_LEFT_LATE
              unlock();
              word = NOTHING;
#else
              word = NOTHING;
              unlock();
#endif
              remove_first(ready, task)
           :: else ->
              remove_first(list, task);
              assert(ahead > 0);
#ifdef MUT_COUNT_IS_KEPT
#else
              ahead--;
#endif
              word = (list.size == 0 -> NOTHING : (ahead == 0 -> LIST : LIST | AHEAD));
              unlock()
           fi
        fi
     fi;
     d_step {
       assert(mutex != 0 || has_list(word) == (list.size > 0));
       assert(mutex != 0 || !has_list(word) || is_ahead(word) == (ahead > 0));
       assert(!has_some || task != NOTHING);
       assert(!has_front || task == 3);
       assert(put_back == 0 || task == put_back || task == 3 && !over_front);
       if
       :: task != NOTHING ->
          assert(!was_popped[task]);
          assert(task != 2 && task != 4 || was_popped[1]);
          assert(task != 4 || was_popped[3]);
          was_popped[task] = true;
          popped++;
          put_back = 0;
          over_front = false;
          beside_front = false
       :: else
       fi;
       has_some = false; has_front = false; alone = false; seen = 0
     };
     if
     :: (task == 1 || task == 4) && !was_put_back[task] ->
        d_step {
          was_put_back[task] = true;
          was_popped[task] = false;
          popped--;
          over_front = front_pushed
        };
        /* SeriesQueue::put_back */
        seen = word;
        if
#ifdef MUT_PUT_BACK_BEHIND_THE_FRONT
#else
        :: is_ahead(seen) -> push_front(task)
#endif
        :: else -> prepend(ready, task)
        fi;
        d_step {
          put_back = task;
          beside_front = front_begun && !over_front;
          seen = 0
        }
     :: else
     fi;
     task = 0
  od
}

init {
  atomic {
    run ThreadA();
    run ThreadB();
    run Series()
  };
  (_nr_pr == 1);
  assert(popped == TASKS && word == NOTHING && list.size == 0 && ready.size == 0 && mutex == 0)
}

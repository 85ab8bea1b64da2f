/*
 * A file operation whose scope may be cancelled at any moment (FileIo::withdraw, rule 9): the queue of
 * the ring, the kernel, the queue of the threads, one of these threads.
 *
 * The names are those of the code:
 *   ring_lock    the FileRing lock, which guards in_ring, asleep, idle and refusing_ring
 *   pool_lock    the lock of the threads' WorkerPool, which guards in_threads and refusing_threads
 *   kernel       what the ring's kernel side does with it
 *   reg          the registration of the task's series in its scope (CancelRegistration::state_)
 *   scope_ended  the scope has a reason, which is the operation's end_reason(). The mutex of the scope
 *                is a leaf and guards nothing else but reg, so each use of it is one step (scope.pml)
 *
 * One operation, in a ring that has room for one. The kernel and the threads may answer at any
 * moment, or never (silent); only a cancellation is always answered. Every other access to shared data
 * is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   MUT_x       breaks one rule: see the file `mutations`
 */

#define NOBODY 0
#define ELSEWHERE 0
#define WAITING 1
#define BEGUN 2
#define TO_CANCEL 3
#define IDLE 0
#define IN_FLIGHT 1
#define ANSWERED 2

mtype = { OUTSIDE, ENTERED, CALLED, HANDED_OVER };

byte ring_lock = NOBODY, pool_lock = NOBODY;
bool scope_ended;
mtype reg = OUTSIDE;
byte in_ring = ELSEWHERE, in_threads = ELSEWHERE, kernel = IDLE;
bool tried, asleep, idle = true, woken, cancelling, again;
bool refusing_ring, refusing_threads;

/* Ghosts. */
bool alive = true, called, scope_over, had_begun, buffer_used, inside, silent, over;
byte callbacks;

#ifdef NO_RULES
#define RULE(condition) skip
#else
#define RULE(condition) assert(condition)
#endif

#define TOUCH assert(alive && callbacks == 0)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

/* The task is posted: its callback runs, and it is freed. */
inline post() {
  d_step {
    TOUCH;
    RULE(reg == OUTSIDE);
    assert(!buffer_used);
    assert(in_ring != WAITING && in_ring != TO_CANCEL && in_threads != WAITING);
    callbacks++;
    alive = false
  }
}

/* FileTask::end_with, by the owner of the completion. Needs the local posts. */
inline finish() {
  d_step { TOUCH; posts = reg != CALLED; reg = (posts -> OUTSIDE : HANDED_OVER) };
#ifdef MUT_END_IGNORES_HAND_OVER
  posts = true; reg = OUTSIDE;
#endif
  if
  :: posts -> post()
  :: else
  fi
}

/* FileThreads::post */
inline post_to_threads() {
  LOCK(pool_lock);
  d_step { TOUCH; refused = scope_ended || (refusing_threads && !tried) };
#ifdef MUT_COMES_TO_THREADS_UNSEEN
  refused = refusing_threads && !tried;
#endif
  if
  :: !refused -> in_threads = WAITING
  :: else
  fi;
  UNLOCK(pool_lock);
  if
  :: refused -> finish()
  :: else
  fi
}

/* FileTask::dispatch, FileIo::submit */
proctype Starter() {
  bool refused, wake, posts;
  d_step { refused = scope_ended; reg = (scope_ended -> OUTSIDE : ENTERED) };
  if
  :: refused -> finish(); goto done
  :: else
  fi;
  if
  :: post_to_threads()
  :: true ->
     LOCK(ring_lock);
     d_step { TOUCH; refused = scope_ended || refusing_ring };
#ifdef MUT_COMES_TO_RING_UNSEEN
     refused = refusing_ring;
#endif
     if
     :: !refused -> d_step { in_ring = WAITING; wake = asleep && idle; asleep = asleep && !wake }
     :: else
     fi;
     UNLOCK(ring_lock);
     if
     :: refused -> finish()
     :: !refused && wake -> woken = true
     :: else
     fi
  fi;
done:
  skip
}

/* FileRing::thread_main */
proctype Ring() {
  bool begin, cancel, refused, posts;
  do
  :: over -> break
  :: else ->
     LOCK(ring_lock);
     if
     :: in_ring == TO_CANCEL -> d_step { TOUCH; in_ring = BEGUN; cancel = true }
     :: in_ring == WAITING -> d_step { TOUCH; in_ring = BEGUN; begin = true }
     :: else
     fi;
     d_step { asleep = true; idle = kernel == IDLE && !begin };
     UNLOCK(ring_lock);
     if
     :: cancel -> d_step { cancelling = true; cancel = false }
     :: begin -> d_step { TOUCH; begin = false; buffer_used = true; kernel = IN_FLIGHT }
     :: else
     fi;
     if
     :: woken -> woken = false
     :: kernel == ANSWERED
     :: over
     fi;
     if
     :: kernel == ANSWERED ->
        kernel = IDLE;
#ifndef MUT_REAPED_STAYS_TO_BE_CANCELLED
        LOCK(ring_lock);
        d_step { TOUCH; in_ring = ELSEWHERE };
        UNLOCK(ring_lock);
#endif
        if
        :: again -> tried = true; post_to_threads()
        :: else -> finish()
        fi
     :: else
     fi
  od
}

proctype Kernel() {
  do
  :: over -> break
  :: !silent -> silent = true
  :: kernel == IN_FLIGHT && !silent ->
     if
     :: again = true
     :: again = false
     fi;
     d_step { buffer_used = false; kernel = ANSWERED }
  :: kernel == IN_FLIGHT && cancelling ->
     d_step { again = true; buffer_used = false; kernel = ANSWERED }
  od
}

/* FileThreads: next, execute */
proctype Worker() {
  bool mine, posts;
  do
  :: over -> break
  :: in_threads == WAITING ->
     LOCK(pool_lock);
     mine = in_threads == WAITING;
     if
     :: mine -> in_threads = BEGUN
     :: else
     fi;
     UNLOCK(pool_lock);
     if
     :: mine ->
        d_step { TOUCH; assert(!scope_over || had_begun) };
        d_step { buffer_used = true; inside = true };
        if
        :: !silent
        :: over -> goto done
        fi;
        d_step { buffer_used = false; inside = false };
        finish()
     :: else
     fi
  od;
done:
  skip
}

/* FileRing::withdraw, FileThreads::withdraw */
inline withdraw() {
  LOCK(ring_lock);
  TOUCH;
  if
  :: in_ring == WAITING ->
     mine = true;
#ifndef MUT_STAYS_IN_QUEUE
     in_ring = ELSEWHERE
#endif
  :: in_ring == BEGUN ->
     d_step {
#ifdef MUT_TAKES_WHAT_THE_KERNEL_HAS
       mine = true
#else
       in_ring = TO_CANCEL;
#ifdef MUT_FULL_RING_SLEEPS_ON
       wake = asleep && idle;
#else
       wake = asleep;
#endif
       asleep = asleep && !wake
#endif
     }
  :: else
  fi;
  UNLOCK(ring_lock);
  if
  :: wake -> woken = true
  :: else
  fi;
  if
  :: !mine ->
     LOCK(pool_lock);
     TOUCH;
     if
     :: in_threads == WAITING -> d_step { mine = true; in_threads = ELSEWHERE }
     :: else
     fi;
     UNLOCK(pool_lock)
  :: else
  fi
}

/* CancelScope::cancel, FileTask::on_cancel, FileIo::withdraw */
proctype ScopeCanceller() {
  bool mine, wake, posts;
  scope_ended = true;
  d_step {
    if
    :: reg == ENTERED -> TOUCH; reg = CALLED; called = true
    :: else
    fi
  };
  if
  :: called ->
     withdraw();
     if
     :: mine -> finish(); RULE(!posts)
     :: else
     fi;
     d_step { TOUCH; posts = reg == HANDED_OVER; reg = OUTSIDE };
     if
     :: posts -> post()
     :: else
     fi
  :: else
  fi;
  skip;
  d_step { scope_over = true; had_begun = in_threads == BEGUN }
}

/* FileIo::refuse */
proctype Stop() {
  bool mine, posts;
  LOCK(ring_lock);
  d_step {
    refusing_ring = true;
    mine = in_ring == WAITING;
    if
    :: mine -> in_ring = ELSEWHERE
    :: else
    fi
  };
  UNLOCK(ring_lock);
  if
  :: mine -> finish()
  :: else
  fi;
  LOCK(pool_lock);
  d_step {
    refusing_threads = true;
    mine = in_threads == WAITING && !tried;
    if
    :: mine -> in_threads = ELSEWHERE
    :: else
    fi
  };
  UNLOCK(pool_lock);
  if
  :: mine -> finish()
  :: else
  fi
}

init {
  atomic {
    run Starter();
    run Ring();
    run Kernel();
    run Worker();
    if
    :: run ScopeCanceller()
    :: skip
    fi;
    if
    :: run Stop()
    :: skip
    fi
  };
  /* Nothing else can happen. */
  timeout;
  assert(ring_lock == NOBODY && pool_lock == NOBODY);
  assert(callbacks == 1 || !called || inside);
  assert(callbacks == 1 || silent);
  over = true;
  (_nr_pr == 1)
}

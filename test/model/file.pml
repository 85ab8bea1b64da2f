/*
 * A file operation that may be ended early (FileIo::interrupt, rule 16): the queue of the ring, the
 * kernel, the queue of the threads, one of these threads; and an interruption at any moment.
 *
 * The names are those of docs/concurrency.md and of the code:
 *   I           the mutex of the series' scope; entered and interrupted are guarded by it (rule 9)
 *   R           the ring's: in_ring, asleep, idle, refusing_ring
 *   F           the threads' pool's: in_threads, refusing_threads
 *   ending      FileOperation::ending_
 *   kernel      what the ring's kernel side does with it
 *
 * One operation, in a ring that has room for one. Whoever answers may do so at any moment, or never
 * (silent); only a cancellation is always answered. Every access to shared data is a step of its
 * own; memory is sequentially consistent.
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

byte I = NOBODY, R = NOBODY, F = NOBODY;
bool entered, interrupted, ending;
byte in_ring = ELSEWHERE, in_threads = ELSEWHERE, kernel = IDLE;
bool tried, asleep, idle = true, woken, cancelling, again;
bool refusing_ring, refusing_threads;

/* Ghosts. */
bool alive = true, asked, interruption_over, had_begun, buffer_used, inside, silent, over;
byte callbacks;

#define TOUCH assert(alive && callbacks == 0)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

/* The callback, by who owns the completion. */
inline complete() {
  d_step {
    TOUCH;
    assert(!buffer_used);
    assert(in_ring != WAITING && in_ring != TO_CANCEL && in_threads != WAITING);
    callbacks++;
    alive = false
  }
}

/* FileTask::finished, aborted */
inline finish() {
#ifndef MUT_END_KEEPS_SCOPE
  LOCK(I);
  entered = false;
  UNLOCK(I);
#endif
  complete()
}

/* FileThreads::post */
inline post_to_threads() {
  LOCK(F);
  d_step { TOUCH; refused = ending || (refusing_threads && !tried) };
#ifdef MUT_COMES_TO_THREADS_UNSEEN
  refused = refusing_threads && !tried;
#endif
  if
  :: !refused -> in_threads = WAITING
  :: else
  fi;
  UNLOCK(F);
  if
  :: refused -> finish()
  :: else
  fi
}

/* FileTask::dispatch, FileIo::submit */
proctype Starter() {
  bool refused, wake;
  LOCK(I);
  d_step { refused = interrupted; entered = !interrupted };
  UNLOCK(I);
  if
  :: refused -> complete(); goto done
  :: else
  fi;
  if
  :: post_to_threads()
  :: true ->
     LOCK(R);
     d_step { TOUCH; refused = ending || refusing_ring };
#ifdef MUT_COMES_TO_RING_UNSEEN
     refused = refusing_ring;
#endif
     if
     :: !refused -> d_step { in_ring = WAITING; wake = asleep && idle; asleep = asleep && !wake }
     :: else
     fi;
     UNLOCK(R);
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
  bool begin, cancel, refused;
  do
  :: over -> break
  :: else ->
     LOCK(R);
     if
     :: in_ring == TO_CANCEL -> d_step { TOUCH; in_ring = BEGUN; cancel = true }
     :: in_ring == WAITING -> d_step { TOUCH; in_ring = BEGUN; begin = true }
     :: else
     fi;
     d_step { asleep = true; idle = kernel == IDLE && !begin };
     UNLOCK(R);
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
        LOCK(R);
        d_step { TOUCH; in_ring = ELSEWHERE };
        UNLOCK(R);
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

/* FileThreads: next, carry_out */
proctype Worker() {
  bool mine;
  do
  :: over -> break
  :: in_threads == WAITING ->
     LOCK(F);
     mine = in_threads == WAITING;
     if
     :: mine -> in_threads = BEGUN
     :: else
     fi;
     UNLOCK(F);
     if
     :: mine ->
        d_step { TOUCH; assert(!interruption_over || had_begun) };
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

/* FileRing::interrupt, FileThreads::interrupt */
inline look_for_it() {
  LOCK(R);
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
  UNLOCK(R);
  if
  :: wake -> woken = true
  :: else
  fi;
  if
  :: !mine ->
     LOCK(F);
     TOUCH;
     if
     :: in_threads == WAITING -> d_step { mine = true; in_threads = ELSEWHERE }
     :: else
     fi;
     UNLOCK(F)
  :: else
  fi
}

/* InterruptScope::interrupt, FileTask::interrupt, FileIo::interrupt */
proctype Interrupter() {
  bool mine, wake;
  LOCK(I);
  interrupted = true;
  if
  :: entered ->
     d_step { TOUCH; entered = false; asked = true };
#ifdef MUT_LETS_GO_OF_I
     UNLOCK(I);
#endif
#ifdef MUT_LOOKS_FOR_IT_FIRST
     look_for_it();
     ending = true;
#else
     ending = true;
     look_for_it();
#endif
     d_step { interruption_over = true; had_begun = in_threads == BEGUN };
#ifndef MUT_LETS_GO_OF_I
     UNLOCK(I)
#endif
  :: else -> UNLOCK(I)
  fi;
  if
  :: mine -> complete()
  :: else
  fi
}

/* FileIo::refuse */
proctype Stop() {
  bool mine;
  LOCK(R);
  d_step {
    refusing_ring = true;
    mine = in_ring == WAITING;
    if
    :: mine -> in_ring = ELSEWHERE
    :: else
    fi
  };
  UNLOCK(R);
  if
  :: mine -> finish()
  :: else
  fi;
  LOCK(F);
  d_step {
    refusing_threads = true;
    mine = in_threads == WAITING && !tried;
    if
    :: mine -> in_threads = ELSEWHERE
    :: else
    fi
  };
  UNLOCK(F);
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
    :: run Interrupter()
    :: skip
    fi;
    if
    :: run Stop()
    :: skip
    fi
  };
  /* Nothing else can happen. */
  timeout;
  assert(I == NOBODY && R == NOBODY && F == NOBODY);
  assert(callbacks == 1 || !asked || inside);
  assert(callbacks == 1 || silent);
  over = true;
  (_nr_pr == 1)
}

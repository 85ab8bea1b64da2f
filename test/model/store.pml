/*
 * The protocol by which processes share a stored timer: schedule, claim, finish, cancel, reschedule,
 * and the question for a lost answer (the rules of src/store/StoreBackend.h).
 *
 * The names are those of the code:
 *   TRANSACTION   BEGIN IMMEDIATE to COMMIT of SQLite, the mutex of MemoryStore, a script of Redis.
 *                 Other processes wait for its end, so it is one step. A process that dies in it has
 *                 changed nothing; what it has committed stays, whichever process dies
 *   stage, fence, marked   of a timer, as the store has them
 *   over          the lease of the timer is over by the clock of the store
 *   known, answer   what the store remembers of a request by its id
 *
 * Timer t + 1 is the successor of timer t: the copy that a reschedule of a running timer makes. A
 * waiting timer may be due at any moment, and a lease may end at any moment. A process may die, and
 * an answer may get lost, between any two steps. A process that misses an answer sends the request
 * again or asks for the answer, while the first one may still be under way.
 *
 * Parameters (-D):
 *   ROUNDS        how many timers one worker claims, one after the other                (2)
 *   OTHER_ROUNDS  how many the other one claims                                         (2)
 *   CANCELS       requests that cancel all timers of the name                           (2)
 *   RESCHEDULES   requests that reschedule all of them                                  (0)
 *   TIMERS        timers in all                                                         (1)
 *   SURE          no process sends a request again or asks for its answer
 *   WITH_SCHEDULE the first timer is stored by a request; otherwise it is there
 *   MUT_x         breaks one rule: see the file `mutations`
 */

#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef OTHER_ROUNDS
#define OTHER_ROUNDS 2
#endif
#ifndef CANCELS
#define CANCELS 2
#endif
#ifndef RESCHEDULES
#define RESCHEDULES 0
#endif
#ifndef TIMERS
#define TIMERS 1
#endif
#ifdef WITH_SCHEDULE
#define SCHEDULES 1
#else
#define SCHEDULES 0
#endif
#define REQUESTS (CANCELS + RESCHEDULES + SCHEDULES)
#define IS_CANCEL(r) ((r) < CANCELS)
#define IS_SCHEDULE(r) ((r) >= CANCELS + RESCHEDULES)

#define NOBODY 0
#define TRANSACTION atomic

/* Stages. Whatever is stored and has not ended is in one of the first three. */
#define ABSENT 0
#define WAITING 1
#define LEASED 2
#define BLOCKED 3
#define DONE 4
#define CANCELLED 5
#define NEITHER 6  /* only by a mutation */

/* Verdicts about one timer. STORED is the answer to a schedule. */
#define NONE 0
#define WON 1
#define WON_AFTER 2
#define RUNNING 3
#define AFTER_RUN 4
#define STORED 5
/* What is known of a request. */
#define UNANSWERED 0
#define ANSWERED 1
#define USED_UP 2

/* The store. */
byte stage[TIMERS], fence[TIMERS], last_fence;
bool marked[TIMERS], over[TIMERS];
byte known[REQUESTS], answer[REQUESTS * TIMERS];

/* Ghosts. An answer that was given or has become true stays the answer. */
byte holder[TIMERS];  /* the worker whose lease is live */
bool no_more[TIMERS]; /* a cancel has found a run: no further one may follow */
bool carried_out[REQUESTS], is_answered[REQUESTS], answered_never[REQUESTS], finished;

#define LIVE(t) (stage[t] == LEASED && !over[t])
#define HAS_ENDED(t) (stage[t] == DONE || stage[t] == CANCELLED)
/* Whether an answer says that a cancel has ended the timer. */
#define PROMISED(r, t) (IS_CANCEL(r) && is_answered[r] && \
                        (answer[(r) * TIMERS + t] == WON || answer[(r) * TIMERS + t] == WON_AFTER))

/* The process dies, or what it sends gets lost; or it goes on. */
#define MAY_DIE if :: goto dead :: skip fi

inline new_fence(t) { last_fence++; fence[t] = last_fence }

/* The successor of timer t waits from now on, if there is one. */
inline release(t) {
  if
  :: t + 1 < TIMERS && stage[(t + 1) % TIMERS] == BLOCKED -> stage[(t + 1) % TIMERS] = WAITING
  :: else
  fi
}

inline end_timer(t, how) {
  stage[t] = how;
  marked[t] = false;
  over[t] = false;
#ifdef MUT_SUCCESSOR_LOST
  if
  :: how == CANCELLED -> release(t)
  :: else
  fi
#else
  release(t)
#endif
}

inline make_wait(t) {
  stage[t] = WAITING;
  marked[t] = false;
  over[t] = false;
  new_fence(t)
}

/* `verdicts` are the answer. They do not depend on how often somebody asks. */
inline settle(r) {
  for (i : 0 .. TIMERS - 1) {
    assert(!(is_answered[r] || carried_out[r]) || answer[r * TIMERS + i] == verdicts[i]);
    answer[r * TIMERS + i] = verdicts[i]
  }
  i = 0
}

/* Tells `verdicts` to whoever has sent the request. */
inline tell(r) {
  assert(!answered_never[r]);
  settle(r);
  is_answered[r] = true
}

/* Sets `verdicts` to what the request finds. */
inline decide(r) {
  for (i : 0 .. TIMERS - 1) {
    if
    :: known[r] == ANSWERED -> verdicts[i] = answer[r * TIMERS + i]
    :: known[r] != ANSWERED && IS_SCHEDULE(r) -> verdicts[i] = (i == 0 -> STORED : NONE)
    :: known[r] != ANSWERED && !IS_SCHEDULE(r) ->
       if
       :: stage[i] == WAITING -> verdicts[i] = WON
       :: stage[i] == BLOCKED -> verdicts[i] = (IS_CANCEL(r) -> WON : NONE)
       :: stage[i] == LEASED && over[i] -> verdicts[i] = WON_AFTER
#ifdef MUT_RUNNING_IS_WON
       :: LIVE(i) -> verdicts[i] = (IS_CANCEL(r) -> WON : AFTER_RUN)
#else
       :: LIVE(i) -> verdicts[i] = (IS_CANCEL(r) -> RUNNING : AFTER_RUN)
#endif
       :: else -> verdicts[i] = NONE
       fi
    fi
  }
  i = 0
}

inline cancel_timer(t, verdict) {
  if
  :: verdict == WON || verdict == WON_AFTER ->
     /* A claim and a cancel do not both win. */
     assert(holder[t] == NOBODY);
     end_timer(t, CANCELLED)
  :: verdict == RUNNING -> marked[t] = true; no_more[t] = true
  :: else
  fi
}

inline reschedule_timer(t, verdict) {
  if
  :: verdict == WON || verdict == WON_AFTER -> make_wait(t); no_more[t] = false
  :: verdict == AFTER_RUN ->
#ifdef MUT_MOVES_RUNNING
     make_wait(t)
#else
     assert(t + 1 < TIMERS);
     new_fence((t + 1) % TIMERS);
     if
     :: stage[(t + 1) % TIMERS] == ABSENT ->
#ifdef MUT_SUCCESSOR_NOT_BLOCKED
        stage[(t + 1) % TIMERS] = WAITING
#else
        stage[(t + 1) % TIMERS] = BLOCKED
#endif
     :: else -> assert(stage[(t + 1) % TIMERS] == BLOCKED)
     fi
#endif
  :: else
  fi
}

/* Carries out `verdicts`. */
inline apply(r) {
  assert(!carried_out[r] && !answered_never[r]);
  settle(r);
  carried_out[r] = true;
  if
  :: IS_SCHEDULE(r) -> make_wait(0)
  :: IS_CANCEL(r) ->
     for (i : 0 .. TIMERS - 1) {
       cancel_timer(i, verdicts[i])
     }
  :: else ->
     for (i : 0 .. TIMERS - 1) {
       reschedule_timer(i, verdicts[i])
     }
  fi;
  i = 0
}

/* A request on its way to the store, and its answer on the way back. `in_doubt`: the first answer
 * is missing; then it may be asked for instead. */
proctype Request(byte r; bool in_doubt) {
  byte verdicts[TIMERS], i;
  if
  :: true
  :: in_doubt -> goto ask
  fi;
  TRANSACTION {
    d_step { decide(r) };
    if
    :: known[r] == USED_UP -> goto dead
    :: else
    fi;
#ifdef MUT_RECEIPT_FIRST
    d_step { tell(r) };
#endif
    MAY_DIE;
    d_step {
      if
      :: known[r] != ANSWERED ->
         apply(r);
#if !defined(MUT_ID_NOT_REMEMBERED) && !defined(MUT_ID_REMEMBERED_LATER)
         known[r] = ANSWERED
#endif
      :: else
      fi
    }
  };
#ifdef MUT_ID_REMEMBERED_LATER
  MAY_DIE;
  known[r] = ANSWERED;
#endif
  MAY_DIE;
  d_step { tell(r) };
  goto dead;
ask:
  TRANSACTION {
    MAY_DIE;
    d_step {
      if
      :: known[r] == ANSWERED ->
         for (i : 0 .. TIMERS - 1) {
           verdicts[i] = answer[r * TIMERS + i]
         }
         tell(r)
      :: else ->
#ifndef MUT_ID_NOT_USED_UP
         known[r] = USED_UP;
#endif
         assert(!is_answered[r]);
         answered_never[r] = true
      fi
    }
  };
dead:
  atomic {
    for (i : 0 .. TIMERS - 1) {
      verdicts[i] = NONE
    }
    i = 0; r = 0; in_doubt = false
  }
}

/* A claim first ends the cancelled timers whose leases are over. */
inline end_cancelled() {
#ifndef MUT_CLAIM_RUNS_CANCELLED
  for (i : 0 .. TIMERS - 1) {
    if
    :: stage[i] == LEASED && over[i] && marked[i] -> end_timer(i, CANCELLED)
    :: else
    fi
  }
  i = 0
#else
  skip
#endif
}

#ifdef MUT_CLAIM_IGNORES_LEASE
#define MAY_BE_CLAIMED(t) (stage[t] == WAITING || stage[t] == LEASED)
#elif defined(MUT_CLAIM_RUNS_CANCELLED)
#define MAY_BE_CLAIMED(t) (stage[t] == WAITING || (stage[t] == LEASED && over[t]))
#else
#define MAY_BE_CLAIMED(t) (stage[t] == WAITING || (stage[t] == LEASED && over[t] && !marked[t]))
#endif

inline find_due(t) {
  t = 0;
  do
  :: t < TIMERS && !MAY_BE_CLAIMED(t % TIMERS) -> t++
  :: else -> break
  od
}

inline lease_timer(t) {
  /* At most one live lease. */
  assert(holder[t] == NOBODY);
  /* What a cancel has ended does not start, nor is it tried again. */
  assert(!no_more[t]);
  for (i : 0 .. REQUESTS - 1) {
    assert(!PROMISED(i, t))
  }
  i = 0;
  /* A successor starts after the run that it follows. */
  assert(t == 0 || HAS_ENDED((t + TIMERS - 1) % TIMERS));
  stage[t] = LEASED;
  over[t] = false;
  marked[t] = false;
#ifdef MUT_CLAIM_KEEPS_FENCE
  if
  :: fence[t] == 0 -> new_fence(t)
  :: else
  fi;
#else
  new_fence(t);
#endif
  holder[t] = _pid
}

#ifdef MUT_LATE_FINISH
#define IN_TIME true
#else
#define IN_TIME (!over[t])
#endif
#ifdef MUT_NO_FENCE_CHECK
#define SAME_FENCE true
#else
#define SAME_FENCE (fence[t] == mine)
#endif

/* Finish: `accepted` if the lease is live and has the same fence. */
inline decide_finish() {
  accepted = stage[t] == LEASED && IN_TIME && SAME_FENCE;
  assert(!accepted || holder[t] == _pid)
}

inline finish() {
  if
  :: accepted -> holder[t] = NOBODY
  :: else
  fi;
  if
#ifdef MUT_CANCELLED_IS_RETRIED
  :: accepted && retries -> make_wait(t)
#else
  :: accepted && retries && marked[t] -> end_timer(t, CANCELLED)
  :: accepted && retries && !marked[t] ->
     make_wait(t);
#ifdef MUT_SUCCESSOR_EARLY
     release(t)
#endif
#endif
  :: accepted && !retries -> end_timer(t, DONE)
  :: else
  fi
}

/* A process that handles the timers. */
proctype Worker(byte rounds) {
  byte t, mine, i;
  bool accepted, retries;
  do
  :: rounds > 0 ->
     rounds--;
#ifdef MUT_CLAIM_OUTSIDE
     d_step { find_due(t) };
#endif
     TRANSACTION {
#ifndef MUT_CLAIM_OUTSIDE
       d_step { end_cancelled(); find_due(t) };
#endif
       MAY_DIE;
       if
       :: t == TIMERS -> goto next
#ifdef MUT_CLAIM_IN_TWO
       :: else -> stage[t] = NEITHER
       fi
     };
     TRANSACTION {
       MAY_DIE;
       if
#endif
       :: else -> d_step { lease_timer(t); mine = fence[t] }
       fi
     };
     /* The run. */
     TRANSACTION {
       MAY_DIE;
       d_step { decide_finish() };
       if
       :: retries = true
       :: retries = false
       fi;
       finish()
     };
next:
     atomic { accepted = false; retries = false; mine = 0; t = 0 }
  :: else -> break
  od;
dead:
  atomic { t = 0; mine = 0; rounds = 0 }
}

/* The clock of the store. */
proctype Time() {
  byte t;
  do
  :: finished -> break
  :: atomic { LIVE(0) -> over[0] = true; holder[0] = NOBODY }
#if TIMERS > 1
  :: atomic { LIVE(1) -> over[1] = true; holder[1] = NOBODY }
#endif
#if TIMERS > 2
  :: atomic { LIVE(2) -> over[2] = true; holder[2] = NOBODY }
#endif
  od
}

init {
  byte i, t;
  atomic {
    run Time();
#ifndef WITH_SCHEDULE
    stage[0] = WAITING;
    new_fence(0);
#endif
    run Worker(ROUNDS);
    run Worker(OTHER_ROUNDS);
    for (i : 0 .. REQUESTS - 1) {
      run Request(i, false);
#ifndef SURE
      run Request(i, true)
#endif
    }
  };
  /* Only Time is left. */
  (_nr_pr == 2);
  finished = true;
  (_nr_pr == 1);
  d_step {
    for (t : 0 .. TIMERS - 1) {
      assert(stage[t] != NEITHER);
      /* Whatever is blocked is released some day. */
      assert(stage[t] != BLOCKED ||
             stage[(t + TIMERS - 1) % TIMERS] == WAITING || stage[(t + TIMERS - 1) % TIMERS] == LEASED)
    }
    for (i : 0 .. REQUESTS - 1) {
      /* A receipt holds, whoever has died. */
      assert(!is_answered[i] || carried_out[i]);
      assert(!answered_never[i] || !carried_out[i]);
      for (t : 0 .. TIMERS - 1) {
        assert(!PROMISED(i, t) || stage[t] == CANCELLED);
        assert(!is_answered[i] || answer[i * TIMERS + t] != STORED || stage[t] != ABSENT);
        assert(!is_answered[i] || answer[i * TIMERS + t] != AFTER_RUN || stage[(t + 1) % TIMERS] != ABSENT)
      }
    }
  }
}

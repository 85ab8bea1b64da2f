/*
 * A piece of a streamed reply that may be ended early (PieceEnd, rule 17): it waits for room, which
 * comes or not, and an interruption comes at any moment.
 *
 * The names are those of docs/concurrency.md and of the code:
 *   I           the mutex of the series' scope; entered and interrupted are guarded by it (rule 9)
 *   T           the stream's: waiting
 *   asked       PieceEnd::error_
 *   users       the task, and the turn on a handler: the last of them frees the PieceEnd
 *
 * One task. Every access to shared data is a step of its own; memory is sequentially consistent.
 *
 * Parameters (-D):
 *   MUT_x       breaks one rule: see the file `mutations`
 */

#define NOBODY 0

byte I = NOBODY, T = NOBODY;
bool entered, interrupted, asked, waiting;
byte users = 1;

/* Ghosts. */
bool alive = true, freed, over;
byte callbacks;

#define TOUCH assert(alive && callbacks == 0)
#define USE assert(!freed)
#define LOCK(mutex) atomic { mutex == NOBODY -> mutex = _pid + 1 }
#define UNLOCK(mutex) mutex = NOBODY

inline unref() {
  d_step {
    USE;
#ifdef MUT_TASK_FREES_ITS_END
    freed = true
#else
    users--;
    freed = users == 0
#endif
  }
}

/* ReplyStream::hand_over, WFStreamTask::leave_own_scope; by who owns the completion. */
inline end_task() {
  TOUCH;
#ifndef MUT_PIECE_STAYS_IN_SCOPE
  LOCK(I);
  entered = false;
  UNLOCK(I);
#endif
  unref();
  d_step { TOUCH; assert(!waiting); callbacks++; alive = false }
}

/* WFStreamTask::dispatch, ReplyStream::wait */
proctype Starter() {
  bool refused, ends;
  LOCK(I);
  d_step { refused = interrupted; entered = !interrupted };
  UNLOCK(I);
  if
  :: refused -> end_task()
  :: else ->
     LOCK(T);
     d_step { TOUCH; USE; ends = asked };
#ifdef MUT_WAITS_FOR_ROOM_UNSEEN
     ends = false;
#endif
     if
     :: !ends ->
        if
        :: ends = true
        :: waiting = true
        fi
     :: else
     fi;
     UNLOCK(T);
     if
     :: ends -> end_task()
     :: else
     fi
  fi
}

/* ReplyStream::room, over */
proctype Room() {
  bool mine;
  if
  :: waiting
  :: over -> goto done
  :: goto done
  fi;
  LOCK(T);
  d_step { mine = waiting; waiting = false };
  UNLOCK(T);
  if
  :: mine -> end_task()
  :: else
  fi;
done:
  skip
}

/* PieceEnd::take_turn, ReplyStream::interrupt */
inline take_turn() {
  d_step { USE; mine = false };
#ifndef MUT_TURN_DOES_NOT_LOOK
  LOCK(T);
#ifdef MUT_TURN_LEAVES_IT_WAITING
  mine = waiting;
#else
  d_step { mine = waiting; waiting = false };
#endif
  UNLOCK(T);
#endif
  if
  :: mine -> end_task()
  :: else
  fi;
  unref()
}

/* InterruptScope::interrupt, WFStreamTask::interrupt; then the turn on a handler. */
proctype Interrupter() {
  bool mine;
  LOCK(I);
  interrupted = true;
  if
  :: entered ->
     entered = false;
     d_step { USE; TOUCH; users++ };
     asked = true;
     mine = true
  :: else
  fi;
  UNLOCK(I);
  if
  :: mine -> take_turn()
  :: else
  fi
}

init {
  atomic {
    run Starter();
    run Room();
    if
    :: run Interrupter()
    :: skip
    fi
  };
  /* Nothing else can happen. */
  timeout;
  over = true;
  (_nr_pr == 1);
  assert(I == NOBODY && T == NOBODY);
  assert(callbacks == 1 || !interrupted);
  assert(callbacks == 0 || freed)
}

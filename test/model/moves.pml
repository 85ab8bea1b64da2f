/* The processes that reschedule a timer, and those that ask for its remaining time: a part of
 * handle.pml. */

/*
 * PollerTimers::move(). The caller knows the timer to be alive; needs the locals before, seen, moved
 * and too_late, and begun_after_cancel. A timer that was refused when it was created says so.
 */
inline move_timer(to) {
  d_step { TOUCH; before = delay };
#ifdef ANNOUNCED
  d_step { assert(before == REFUSED); too_late = true };
#endif
  do
  :: before == STARTED || moved || too_late -> break
  :: else ->
#ifndef MUT_MOVE_IGNORES_FLAG
     d_step { TOUCH; seen = flag };
#endif
     if
#ifndef MUT_MOVE_IGNORES_FLAG
     :: seen ->
#ifndef MUT_MOVE_LOOKS_ONCE
        d_step { TOUCH; before = delay; too_late = before != STARTED; assert(!too_late || never_queues) }
#else
        d_step { too_late = true; assert(never_queues || removed) }
#endif
#endif
     :: !seen ->
#ifndef MUT_MOVE_STORES
        d_step {
          TOUCH;
          if
          :: delay == before -> delay = to; in_force = to; moved = true
          :: else -> before = delay
          fi
        }
#else
        d_step { TOUCH; delay = to; in_force = to; moved = true }
#endif
     fi
  od;
  if
  :: moved || too_late
  :: else ->
     assert(poller_set);
#ifndef MUT_MOVE_WITHOUT_P
     lock(timers_lock);
#endif
     d_step { TOUCH; moved = queued; assert(moved || removed) };
     if
     :: moved ->
        d_step {
          assert(queued);
          in_force = to;
#ifndef MUT_EARLIER_KEEPS_DEADLINE
          deadline = to;
#else
          deadline = (to < queued_for -> deadline : to);
#endif
#ifndef MUT_QUEUE_UNDELIVERED
          queued_for = (to < queued_for -> to : queued_for)
#endif
        }
     :: else
     fi;
#ifndef MUT_MOVE_WITHOUT_P
     unlock(timers_lock)
#endif
  fi;
  assert(!(moved && begun_after_cancel))
}

/*
 * One number each that is earlier than those of all others, and one that is later. The code does not
 * move if `closed`; this does, so that more moves meet the rest. The code reads the clock of the timer
 * first.
 */
#if MOVERS
proctype Mover(byte earlier, later) {
  bool seen, moved, too_late, begun_after_cancel;
  byte before, to;
  d_step { begun_after_cancel = cancel_won };
  if
  :: to = earlier
  :: to = later
  fi;
  lock(slots_lock);
  if
  :: generation != 0 -> assert(called_back || dropped)
  :: else ->
     d_step { assert(user == 1); TOUCH };
     if
#ifndef MUT_MOVE_IGNORES_RUNNER
     :: runner -> answered_late = true
     :: !runner ->
#else
     :: true ->
#endif
        assert(!answered_late || closed);
        move_timer(to);
        if
        :: !moved ->
#ifndef MUT_LATE_MOVE_FORGOTTEN
           closed = true;
#endif
           answered_late = true
        :: else
        fi
     fi
  fi;
  unlock(slots_lock)
}
#endif

#ifdef WITH_NAME_MOVER
proctype NameMover(byte earlier, later) {
  bool seen, moved, too_late, begun_after_cancel;
  byte before, to;
  if
  :: to = earlier
  :: to = later
  fi;
  lock(registry_lock);
  if
  :: linked -> move_timer(to)
  :: else
  fi;
  unlock(registry_lock)
}
#endif

#ifdef WITH_LOOKER
proctype Looker() {
  bool seen;
  byte before;
  lock(slots_lock);
  if
  :: generation != 0 || runner
  :: else ->
     d_step { TOUCH; before = delay };
     if
     :: before != STARTED ->
        d_step { TOUCH; seen = flag };
#ifndef MUT_LOOKS_ONCE
        if
        :: seen -> d_step { TOUCH; before = delay; assert(before == STARTED || never_queues) }
        :: else
        fi
#else
        assert(!seen || never_queues || removed)
#endif
     :: else
     fi;
     if
     :: before == STARTED ->
        assert(poller_set);
        lock(timers_lock);
        d_step { TOUCH; assert(queued || removed) };
        unlock(timers_lock)
     :: else
     fi
  fi;
  unlock(slots_lock)
}
#endif

#include "store/RedisStoreScriptParts.h"

namespace workflow {

const char* const kRedisStoreUsers = R"lua(
local function answer(timer, verdict)
  if verdict == 'running' or verdict == 'after_run' then
    return {verdict, timer.number, timer.owner, timer.fence, pad(tonumber(timer.wake) - now),
            timer.attempts, '', ''}
  end
  return {verdict, timer.number, '', '', '', timer.attempts, '', ''}
end
local function answer_won(timer)
  return answer(timer, timer.state == 'leased' and 'won_after' or 'won')
end
local function answer_gone(name)
  local latest = latest_end(name)
  if not latest then return {'unknown', '', '', '', '', 0, '', pad(since)} end
  local number, outcome, time = cmsgpack.unpack(latest)
  return {'done', number, '', '', '', 0, outcome, time}
end
-- The timers of that name that have not failed, oldest first.
local function living(name)
  local timers = {}
  for _, number in ipairs(named(NAMES, name)) do
    local timer = at(number)
    if timer.state ~= 'failed' then timers[#timers + 1] = timer end
  end
  return timers
end

-- Returns the newest timer of the name that runs.
local function replace(name, result)
  local timers = living(name)
  local others = {}
  -- Blocked ones end before what blocks them does, so that none of them is released.
  for _, timer in ipairs(timers) do
    if timer.state == 'blocked' then
      finish(timer, 'cancelled')
    else
      others[#others + 1] = timer
    end
  end
  local running
  for _, timer in ipairs(others) do
    if is_live(timer) then
      result[#result + 1] = answer(timer, 'after_run')
      running = timer
    else
      result[#result + 1] = answer_won(timer)
      finish(timer, 'cancelled')
    end
  end
  if #others == 0 then result[#result + 1] = answer_gone(name) end
  return running
end

local users = {}
-- Each returns {error, number of a timer, count, answers...}.

function users.schedule(name, kind, payload, again, skip, due, policy)
  if full then return {'full', '', 0} end
  local result = {'', '', 0}
  local running
  if policy == 'keep' then
    if #living(name) > 0 then return {'exists', '', 0} end
  elseif policy == 'replace' then
    running = replace(name, result)
  end
  local timer = add(name, kind, payload, again, skip, due)
  result[2] = timer.number
  if running then
    block(timer, running)
  else
    wait_until(timer, due)
  end
  return result
end

function users.cancel(name, most)
  local result = {'', '', 0}
  local max = tonumber(most)
  for _, timer in ipairs(living(name)) do
    if #result - 3 >= max then return result end
    -- What an earlier one of them has blocked may be waiting by now.
    if is_live(timer) then
      result[#result + 1] = answer(timer, 'running')
      dequeue(timer)
      timer.marked = true
      enqueue(timer)
      touch(timer)
      has_marked = true
    else
      result[#result + 1] = answer_won(timer)
      finish(timer, 'cancelled')
    end
  end
  if #result == 3 and max > 0 then result[4] = answer_gone(name) end
  return result
end

local function move_successor(running, due, changes, again)
  if running.blocks == '' then block(copy(running, due), running) end
  local successor = at(running.blocks)
  if changes then successor.again = again end
  successor.due = due
  touch(successor)
end
function users.reschedule(name, most, due, change, again)
  local result = {'', '', 0}
  local max, changes = tonumber(most), change == '1'
  for _, timer in ipairs(living(name)) do
    if #result - 3 >= max then return result end
    if is_live(timer) then
      result[#result + 1] = answer(timer, 'after_run')
      move_successor(timer, due, changes, again)
    elseif timer.state ~= 'blocked' then
      result[#result + 1] = answer_won(timer)
      if timer.state == 'leased' then timer.attempts = 0 end
      if changes then timer.again = again end
      timer.due = due
      wait_until(timer, due)
    end
  end
  if #result == 3 and max > 0 then result[4] = answer_gone(name) end
  return result
end

function users.failed(name, remove)
  local numbers = named(FAILED, name)
  for _, number in ipairs(numbers) do
    local timer = at(number)
    call('ZREM', FAILED, base(name) .. number)
    if remove == '1' then
      erase(timer)
    else
      timer.attempts, timer.due = 0, DUE
      wait_until(timer, DUE)
    end
  end
  return {'', '', #numbers}
end

-- The answers that are remembered.
local sessions = {}
local function session_of(id)
  local session = sessions[id]
  if not session then
    local packed = call('HGET', SESSIONS, id)
    session = {known = false, count = 0, place = 0, forgotten = '', highest = ''}
    if packed then
      session.known = true
      session.count, session.place, session.forgotten, session.highest = cmsgpack.unpack(packed)
    end
    sessions[id] = session
  end
  return session
end
-- Session and number to the answer, or false; and what is not written yet of the two hashes.
local answers, answers_later, order_later, later_fields = {}, {}, {}, 0
-- Most requests have a higher number than all that their session has asked: then there is no
-- answer. (The record of an earlier version does not say which was the highest.)
local function may_have_answer(id, number)
  local highest = session_of(id).highest
  return not highest or number <= highest
end
local function fetch_answers(keys)
  for i, answer in ipairs(get_all(ANSWERS, keys)) do answers[keys[i]] = answer end
end
local function earlier_answer(key, id, number)
  local answer = answers[key]
  if answer ~= nil then return answer end
  if not may_have_answer(id, number) then return false end
  fetch_answers({key})
  return answers[key]
end
local function settle_answers()
  call_with_all('HSET', ANSWERS, answers_later)
  call_with_all('HSET', ORDER, order_later)
  answers_later, order_later, later_fields = {}, {}, 0
end
-- There are at most so many sessions, and all together have at most four times as many answers as
-- the process remembers that remembers most. How many there are is read when it is needed.
local MAX_SESSIONS, MAX_ANSWERS = 256, 4 * math.max(remembered, tonumber(meta[8] or 0))
local all_answers, all_sessions
local some_more = math.floor(remembered / 100)
-- The places of a session are numbers without a gap. Returns whether it has any left.
local function forget_first(id, session, most)
  settle_answers()
  local places, keys = {}, {}
  for i = 1, math.min(most, session.count) do
    places[i] = id .. (session.place - session.count + i)
  end
  for i, number in ipairs(get_all(ORDER, places)) do
    keys[i] = id .. number
    answers[keys[i]] = false
    if number > session.forgotten then session.forgotten = number end
  end
  call_with_all('HDEL', ORDER, places)
  call_with_all('HDEL', ANSWERS, keys)
  session.count, session.changed = session.count - #places, true
  all_answers = all_answers - #places
  return session.count > 0
end
-- Forgets so many answers of the session that was used the longest ago, and itself with the last.
local function forget_oldest(most)
  local oldest = call('ZRANGE', USED, 0, 0)[1]
  if forget_first(oldest, session_of(oldest), most) then return end
  call('HDEL', SESSIONS, oldest)
  call('ZREM', USED, oldest)
  sessions[oldest], all_sessions, dropped = nil, all_sessions - 1, true
end
local function remember(key, id, number, packed)
  if remembered == 0 then return end
  local session = session_of(id)
  if not all_answers then
    all_answers, all_sessions = call('HLEN', ORDER), call('ZCARD', USED)
  end
  if not session.known then
    session.known, all_sessions = true, all_sessions + 1
    if dropped then session.forgotten = number end  -- it may have been dropped earlier
  end
  if not session.used then
    session.used = true
    uses = uses + 1
    call('ZADD', USED, uses, id)
  end
  session.place, session.count, session.changed = session.place + 1, session.count + 1, true
  all_answers = all_answers + 1
  local highest = session.highest
  if highest and number > highest then session.highest = number end
  answers[key] = packed
  answers_later[later_fields + 1], answers_later[later_fields + 2] = key, packed
  order_later[later_fields + 1], order_later[later_fields + 2] = id .. session.place, number
  later_fields = later_fields + 2
  -- Some more may be kept, so that many can be forgotten at once. No request has to forget very
  -- many: what is left over is for the next ones.
  local over = session.count - remembered
  if over > some_more then forget_first(id, session, math.min(over, 1000)) end
  over = all_answers - MAX_ANSWERS
  if all_sessions > MAX_SESSIONS then
    forget_oldest(1000)
  elseif over > some_more then
    forget_oldest(math.min(over, 1000))
  end
end
local function flush_sessions()
  for id, session in pairs(sessions) do
    if session.changed then
      call('HSET', SESSIONS, id, cmsgpack.pack(session.count, session.place, session.forgotten,
                                               session.highest))
    end
  end
end

-- An answer as it is remembered. Most are about one timer at most, and tables take long to pack.
local function packed_answer(what, result)
  if #result == 3 then return cmsgpack.pack(what, result[1], result[2], result[3]) end
  if #result > 4 then return cmsgpack.pack(what, result) end
  return cmsgpack.pack(what, result[1], result[2], result[3], unpack(result[4]))
end
local function unpacked_answer(packed)
  local p = {cmsgpack.unpack(packed)}
  if type(p[2]) == 'table' then return p[1], p[2] end
  return p[1], {p[2], p[3], p[4], #p > 4 and {unpack(p, 5)} or nil}
end

local function for_user(what, id, number, ...)
  if number == '' then return users[what](...) end
  local key = id .. number
  local earlier = earlier_answer(key, id, number)
  if earlier == '' then return {'used', '', 0} end
  if earlier then
    local asked, answered = unpacked_answer(earlier)
    return asked == what and answered or {'another', '', 0}
  end
  local result = users[what](...)
  -- What was not stored for want of memory may be tried again.
  if result[1] ~= 'full' then remember(key, id, number, packed_answer(what, result)) end
  return result
end
)lua";

}  // namespace workflow

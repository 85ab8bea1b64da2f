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

-- The answers that are remembered. A session counts its places: what one call has remembered for it
-- has one place in the hash ORDER, which holds the numbers of these requests, 20 digits each.
local kDigits = 20
local sessions = {}
local function session_of(id)
  local session = sessions[id]
  if not session then
    local packed = call('HGET', SESSIONS, id)
    -- `newest`: no greater number was remembered, or asked for, as long as the session is known.
    session = {known = packed and true or false, count = 0, place = 0, forgotten = '', newest = '',
               first = 1, numbers = {}}
    if packed then
      local newest, first
      session.count, session.place, session.forgotten, newest, first = cmsgpack.unpack(packed)
      -- Earlier versions wrote neither: each request had a place.
      session.newest = newest or string.rep('9', kDigits)
      session.first = first or session.place - session.count + 1
    end
    sessions[id] = session
  end
  return session
end
-- Session and number to the answer, or false; and what is not written yet.
local answers, answers_later = {}, {}
local function fetch_answers(keys)
  for i, answer in ipairs(get_all(ANSWERS, keys)) do answers[keys[i]] = answer end
end
-- Most numbers are greater than all before. The server need not look for those.
local function may_be_known(id, number)
  return number <= session_of(id).newest
end
local function earlier_answer(id, number)
  if not may_be_known(id, number) then return false end
  local key = id .. number
  if answers[key] == nil then fetch_answers({key}) end
  return answers[key]
end
local function settle_answers()
  call_with_all('HSET', ANSWERS, answers_later)
  answers_later = {}
end
local function settle_numbers(id, session)
  if #session.numbers == 0 then return end
  session.place = session.place + 1
  call('HSET', ORDER, id .. session.place, table.concat(session.numbers))
  session.numbers = {}
end
-- Forgets the oldest answers of the session, so many at most. Returns whether there are more.
local function forget_first(id, session, most)
  settle_answers()
  settle_numbers(id, session)
  local keys, gone = {}, {}
  while #keys < most and session.first <= session.place do
    local place = id .. session.first
    local numbers = call('HGET', ORDER, place)
    local past = math.min(#numbers, (most - #keys) * kDigits)
    for first = 1, past, kDigits do
      local number = string.sub(numbers, first, first + kDigits - 1)
      local key = id .. number
      keys[#keys + 1] = key
      answers[key] = false
      if number > session.forgotten then session.forgotten = number end
    end
    if past < #numbers then
      call('HSET', ORDER, place, string.sub(numbers, past + 1))
    else
      gone[#gone + 1] = place
      session.first = session.first + 1
    end
  end
  call_with_all('HDEL', ORDER, gone)
  call_with_all('HDEL', ANSWERS, keys)
  session.count = session.count - #keys
  return session.count > 0
end
local function remember(id, number, packed)
  if remembered == 0 then return end
  local session = session_of(id)
  if not session.known then
    if call('ZCARD', USED) >= 1000 then
      local oldest = call('ZRANGE', USED, 0, 0)[1]
      local its = session_of(oldest)
      while forget_first(oldest, its, 1000) do end
      call('HDEL', SESSIONS, oldest)
      call('ZREM', USED, oldest)
      sessions[oldest] = nil
      dropped = true
    end
    session.known = true
    if dropped then session.forgotten = number end  -- it may have been dropped earlier
  end
  if not session.changed then
    session.changed = true
    uses = uses + 1
    call('ZADD', USED, uses, id)
  end
  session.count = session.count + 1
  session.numbers[#session.numbers + 1] = number
  if number > session.newest then session.newest = number end
  local key, n = id .. number, #answers_later
  answers[key] = packed
  answers_later[n + 1], answers_later[n + 2] = key, packed
  local over = session.count - remembered
  -- Some more may be kept, so that many can be forgotten at once.
  if over > math.floor(remembered / 100) then forget_first(id, session, math.min(over, 1000)) end
end
local function flush_sessions()
  for id, session in pairs(sessions) do
    if session.changed then
      settle_numbers(id, session)
      call('HSET', SESSIONS, id, cmsgpack.pack(session.count, session.place, session.forgotten,
                                               session.newest, session.first))
    end
  end
end

-- An answer as it is remembered. It takes long to pack one, so the two most frequent answers, to a
-- schedule and to a cancel that has won one timer, are a letter and the number of the timer. What is
-- packed never begins with these letters.
local function packed_answer(what, result)
  if #result > 4 then return cmsgpack.pack(what, result) end
  local first = result[4]
  if result[1] == '' then
    if what == 'schedule' and not first then return 'S' .. result[2] end
    if what == 'cancel' and first and first[1] == 'won' and first[6] == 0 then
      return 'C' .. first[2]
    end
  end
  return cmsgpack.pack(what, result[1], result[2], result[3], unpack(first or {}))
end
local function unpacked_answer(packed)
  local letter = string.sub(packed, 1, 1)
  if letter == 'S' then return 'schedule', {'', string.sub(packed, 2), 0} end
  if letter == 'C' then
    return 'cancel', {'', '', 0, {'won', string.sub(packed, 2), '', '', '', 0, '', ''}}
  end
  local p = {cmsgpack.unpack(packed)}
  if type(p[2]) == 'table' then return p[1], p[2] end
  return p[1], {p[2], p[3], p[4], #p > 4 and {unpack(p, 5)} or nil}
end

-- The request is in ARGV, from `first` to `past`: session, number, and what users[what] takes.
local function for_user(what, first, past)
  local id, number = ARGV[first], ARGV[first + 1]
  if number == '' then return users[what](unpack(ARGV, first + 2, past)) end
  local earlier = earlier_answer(id, number)
  if earlier == '' then return {'used', '', 0} end
  if earlier then
    local asked, answered = unpacked_answer(earlier)
    return asked == what and answered or {'another', '', 0}
  end
  local result = users[what](unpack(ARGV, first + 2, past))
  -- What was not stored for want of memory may be tried again.
  if result[1] ~= 'full' then remember(id, number, packed_answer(what, result)) end
  return result
end
)lua";

}  // namespace workflow

#include "store/RedisStoreScriptParts.h"

namespace workflow {

const RedisStoreScriptPart kRedisStoreTimers{
    R"lua(
-- What a timer has as long as nothing else is said. Most have all of it until they are claimed.
local usual = {state = 'waiting', fence = '', attempts = 0, again = '', skip = '-1',
               marked = false, blocks = '', blocked_by = '', owner = '', reason = ''}
local kUsual = {__index = usual}
-- A payload up to that size is packed with the timer, which is written whenever something changes.
local kSmallPayload = 200
-- Numbers up to 2^53 are exact, and shorter than their digits.
local function short(digits)
  local number = tonumber(digits)
  return number < 9007199254740992 and number or digits
end
local padded = {}  -- many timers of a script have the same time
local function long(number)
  if type(number) ~= 'number' then return number end
  local digits = padded[number]
  if not digits then
    digits = pad(number)
    padded[number] = digits
  end
  return digits
end
-- A timer is packed in one of three ways, which differ in how much is said about it. The first is
-- for one that waits for its first run, the second for one that runs, and both only if there is
-- nothing special about it. The fence of a timer that waits means nothing. Most timers come packed
-- in the first way from RedisStoreCodec.
local function pack_running(name, kind, payload, due, wake, fence, attempts, owner)
  return cmsgpack.pack(name, kind, payload, due, wake, 'leased', fence, attempts, owner)
end
local function pack(t)
  local due, wake = short(t.due), t.wake ~= t.due and short(t.wake)
  if t.again == '' and t.skip == '-1' and t.blocks == '' and not t.marked then
    if t.state == 'waiting' and t.attempts == 0 then
      return cmsgpack.pack(t.name, t.kind, t.payload, due, wake)
    elseif t.state == 'leased' then
      return pack_running(t.name, t.kind, t.payload, due, wake, t.fence, t.attempts, t.owner)
    end
  end
  return cmsgpack.pack(t.name, t.kind, t.payload, due, wake, t.state, t.fence, t.attempts, t.again,
                       t.skip, t.marked, t.blocks, t.blocked_by, t.owner, t.reason)
end
local function load(number, packed)
  local name, kind, payload, due, wake, state, fence, attempts, again, skip, marked, blocks,
        blocked_by, owner, reason = cmsgpack.unpack(packed)
  due = long(due)
  local timer = {number = number, name = name, kind = kind, payload = payload, due = due,
                 wake = wake and long(wake) or due}
  if skip then
    timer.state, timer.fence, timer.attempts = state, fence, attempts
    timer.again, timer.skip, timer.marked = again, skip, marked
    timer.blocks, timer.blocked_by, timer.owner, timer.reason = blocks, blocked_by, owner, reason
  elseif state then
    timer.state, timer.fence, timer.attempts, timer.owner = state, fence, attempts, again
  end
  return setmetatable(timer, kUsual)
end
-- Reads those of these timers that are not known yet.
local function fetch(numbers)
  local unknown = {}
  for _, number in ipairs(numbers) do
    if cache[number] == nil then unknown[#unknown + 1] = number end
  end
  for i, packed in ipairs(get_all(TIMERS, unknown)) do cache[unknown[i]] = packed end
end
local function find(number)
  local timer = cache[number]
  if type(timer) == 'table' then return timer end
  if timer == nil then timer = call('HGET', TIMERS, number) end
  timer = timer and load(number, timer)
  cache[number] = timer
  return timer
end
local function at(number)
  return find(number) or error('timer ' .. number .. ' is missing')
end
local function touch(timer)
  changed[timer.number] = timer
end
-- Texts of timers that are not written yet. What is in `changed` is newer.
local records, records_count = {}, 0
local function put_record(number, packed)
  records[records_count + 1], records[records_count + 2] = number, packed
  records_count = records_count + 2
  cache[number] = packed
end
local function flush()
  for number, timer in pairs(changed) do put_record(number, pack(timer)) end
  call_with_all('HSET', TIMERS, records)
  call_with_all('HDEL', TIMERS, erased)
  changed, erased, records, records_count = {}, {}, {}, 0
  for _, key in ipairs({NAMES, QUEUE, MARKED, LEASED}) do settle(key) end
end

local function next_number()
  last = last + 1
  return pad(last)
end
local function is_live(timer)
  return timer.state == 'leased' and NOW < timer.wake
end
local function find_run(number, fence)
  local timer = find(number)
  return timer and is_live(timer) and tonumber(timer.fence) == tonumber(fence) and timer
end
-- Reads the timers of that name which there are now, oldest first, in pages: as many as are wanted
-- at a time, if these are not too many. Calls that return the numbers of a page, or nothing after
-- the last one. Timers that have failed are passed over without being read, if they are many.
local any_failed
local function without_failed(members, first)
  if any_failed == nil then any_failed = call('ZCARD', FAILED) > 0 end
  if not any_failed or #members == 0 then return members end
  local failed = call('ZRANGEBYLEX', FAILED, '(' .. first, '[' .. members[#members])
  if #failed == 0 then return members end
  local left, next_failed = {}, 1
  for _, member in ipairs(members) do
    if member == failed[next_failed] then
      next_failed = next_failed + 1
    else
      left[#left + 1] = member
    end
  end
  return left
end
local function pages(name, wanted)
  local first, past, is_over = base(name), nil, false
  local size = math.min(math.max(wanted, 16), 1000)
  if added_names[name] then
    settle(NAMES)
    added_names = {}
  end
  local members = seen[name]
  return function()
    if is_over then return end
    if members then
      is_over = true
    else
      past = past or '[' .. first .. pad(last)
      members = call('ZRANGEBYLEX', NAMES, '(' .. first, past, 'LIMIT', 0, size)
      looked_at = looked_at + #members
      is_over = #members < size
      local last_member = members[size]
      members, first = without_failed(members, first), last_member
    end
    local numbers = {}
    for _, member in ipairs(members) do
      local number = string.sub(member, -19)
      if not has_left[number] then numbers[#numbers + 1] = number end
    end
    members = nil
    fetch(numbers)
    return numbers
  end
end
-- Reads the timers of these names together, unless a name has many.
local function look_ahead(names)
  local numbers = {}
  for _, name in ipairs(names) do
    local first = base(name)
    local members = call('ZRANGEBYLEX', NAMES, '[' .. first, '(' .. first .. ':', 'LIMIT', 0, 17)
    if #members <= 16 then
      seen[name] = members
      for _, member in ipairs(members) do numbers[#numbers + 1] = string.sub(member, -19) end
    end
  end
  fetch(numbers)
end

local function enqueue(timer)
  put(QUEUE, base(timer.kind) .. timer.wake .. timer.number, true)
  if timer.state == 'leased' then put(LEASED, timer.wake .. timer.number, true) end
  if timer.marked then put(MARKED, timer.wake .. timer.number, true) end
end
local function dequeue(timer)
  if timer.state ~= 'waiting' and timer.state ~= 'leased' then return end
  put(QUEUE, base(timer.kind) .. timer.wake .. timer.number, false)
  if timer.state == 'leased' then put(LEASED, timer.wake .. timer.number, false) end
  if timer.marked then put(MARKED, timer.wake .. timer.number, false) end
end
local function add(name, kind, payload, again, skip, due)
  local number = next_number()
  local timer = setmetatable({number = number, name = name, kind = kind, payload = payload,
                              state = 'blocked', due = due, wake = due}, kUsual)
  if again ~= '' then timer.again = again end
  if skip ~= '-1' then timer.skip = skip end
  cache[number] = timer
  put_fresh(NAMES, base(name) .. number)
  added_names[name] = true
  if #payload > kSmallPayload then
    call('HSET', PAYLOADS, number, payload)
    timer.payload = false
  end
  touch(timer)
  return timer
end
-- Stores a timer that waits, about which nothing is special and whose payload is small, so that it
-- comes already packed. Nobody may look at it again in this script, so it gets no table. Returns
-- its number.
local function add_usual(name, kind, packed, due)
  local number = next_number()
  put_record(number, packed)
  put_fresh(NAMES, base(name) .. number)
  put_fresh(QUEUE, base(kind) .. due .. number)
  added_names[name] = true
  if due < earliest then earliest = due end
  return last
end
local function payload_in_server(number)
  return call('HGET', PAYLOADS, number) or error('the payload of timer ' .. number .. ' is missing')
end
local function payload_of(timer)
  return timer.payload or payload_in_server(timer.number)
end
local function copy(timer, due)
  return add(timer.name, timer.kind, payload_of(timer), timer.again, timer.skip, due)
end
-- Each move to another time takes a fence, as each claim does. One that was blocked keeps its time.
local function wait_until(timer, wake)
  if timer.state ~= 'blocked' then last = last + 1 end
  dequeue(timer)
  timer.state, timer.wake = 'waiting', wake
  if timer.marked then timer.marked = false end
  if timer.owner ~= '' then timer.owner = '' end
  if timer.reason ~= '' then timer.reason = '' end
  enqueue(timer)
  touch(timer)
  if wake < earliest then earliest = wake end
end
local function block(timer, by)
  timer.state, timer.blocked_by = 'blocked', by.number
  by.blocks = timer.number
  touch(timer)
  touch(by)
end
local function release_successor(timer)
  if timer.blocks == '' then return end
  local successor = at(timer.blocks)
  timer.blocks, successor.blocked_by = '', ''
  touch(timer)
  wait_until(successor, successor.due)
end
local function erase(timer)
  dequeue(timer)
  if timer.blocked_by ~= '' then
    local by = at(timer.blocked_by)
    by.blocks = ''
    touch(by)
  end
  put(NAMES, base(timer.name) .. timer.number, false)
  erased[#erased + 1], has_left[timer.number] = timer.number, true
  if not timer.payload then call('HDEL', PAYLOADS, timer.number) end
  cache[timer.number] = false
  changed[timer.number] = nil
end

-- The ends of this script are written together, too: names in the order of their ends, of which the
-- first has the position `first_position`.
local ended_later, names_later, first_position = {}, {}, 0
local function settle_ended()
  if #names_later == 0 then return end
  local fields, n = {}, 0
  for name, packed in pairs(ended_later) do
    fields[n + 1], fields[n + 2] = name, packed
    n = n + 2
  end
  call_with_all('HSET', ENDED, fields)
  for first = 1, #names_later, 500 do
    call('RPUSH', RING,
         cmsgpack.pack(first_position + first - 1, now,
                       unpack(names_later, first, math.min(first + 499, #names_later))))
  end
  ended_later, names_later = {}, {}
end
local function latest_end(name)
  return ended_later[name] or call('HGET', ENDED, name)
end
local function note_end(number, name, outcome)
  position = position + 1
  if remembered == 0 and ring_length == 0 then
    since = math.max(since, now + 1)
    return
  end
  local n = #names_later
  if n == 0 then first_position = position end
  names_later[n + 1] = name
  ended_later[name] = cmsgpack.pack(tonumber(number), outcome, now, position)
  ring_length = ring_length + 1
end
-- Forgets the oldest ends. A request that has ended very many timers leaves some of this work to
-- later ones.
local function trim_ended()
  local over = ring_length - remembered
  if over <= some_more then return end
  settle_ended()
  local left, is_done = 1000, false
  while over > 0 and left > 0 and not is_done do
    local names, positions, whole, rest, gone = {}, {}, 0, nil, {}
    for _, packed in ipairs(call('LRANGE', RING, 0, 9)) do
      local ends = {cmsgpack.unpack(packed)}
      local most, size = math.min(over, left) - #names, #ends - 2
      -- An entry is divided only if it must be.
      if most == 0 or (size > most and over - #names <= some_more) then
        is_done = true
        break
      end
      local count = math.min(size, most)
      for i = 1, count do
        names[#names + 1], positions[#positions + 1] = ends[2 + i], ends[1] + i - 1
      end
      since = math.max(since, ends[2] + 1)  -- others may have ended in the same microsecond
      whole = whole + 1
      if count < size then
        rest = cmsgpack.pack(ends[1] + count, ends[2], unpack(ends, 3 + count))
        break
      end
    end
    if whole == 0 then return end
    call('LPOP', RING, whole)
    if rest then call('LPUSH', RING, rest) end
    for i, latest in ipairs(call('HMGET', ENDED, unpack(names))) do
      if latest and select(4, cmsgpack.unpack(latest)) == positions[i] then
        gone[#gone + 1] = names[i]
      end
    end
    call_with_all('HDEL', ENDED, gone)
    over, left, ring_length = over - #names, left - #names, ring_length - #names
  end
end
local function finish(timer, outcome)
  note_end(timer.number, timer.name, outcome)
  release_successor(timer)
  erase(timer)
end
-- Ends a timer that was not unpacked into a table: one that blocks no other timer, is blocked by none
-- and is not marked. So it has to leave only QUEUE and NAMES.
local function finish_usual(number, name, kind, payload, wake, outcome)
  note_end(number, name, outcome)
  put_gone(QUEUE, base(kind) .. wake .. number)
  put_gone(NAMES, base(name) .. number)
  erased[#erased + 1], has_left[number] = number, true
  if not payload then call('HDEL', PAYLOADS, number) end
  cache[number] = false
end
-- Kind, payload and time of a timer that was read, if it waits for its first run and nothing about
-- it is special.
local function usual_one(number)
  local packed = cache[number]
  if type(packed) ~= 'string' then return end
  local _, kind, payload, due, wake, state = cmsgpack.unpack(packed)
  if not state then return kind, payload, long(wake or due) end
end
-- Moves such a timer.
local function move_usual(number, name, kind, payload, wake, due)
  last = last + 1
  if wake ~= due then
    put(QUEUE, base(kind) .. wake .. number, false)
    put(QUEUE, base(kind) .. due .. number, true)
  end
  put_record(number, cmsgpack.pack(name, kind, payload, short(due), false))
  if due < earliest then earliest = due end
end
)lua",
    "short, long, pack_running, fetch, at, touch, put_record, flush, is_live, find_run, pages, "
    "look_ahead, enqueue, dequeue, add, add_usual, payload_in_server, payload_of, copy, "
    "wait_until, block, release_successor, erase, settle_ended, latest_end, note_end, "
    "trim_ended, finish, finish_usual, usual_one, move_usual"};

}  // namespace workflow

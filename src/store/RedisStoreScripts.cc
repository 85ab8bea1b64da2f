#include "store/RedisStoreScripts.h"

namespace workflow {

namespace {

constexpr const char* kOpening = R"lua(#!lua flags=allow-oom
local id, shards, shard, may, server, time, done = unpack(ARGV)
local meta = KEYS[1]
local kind = redis.call('TYPE', meta).ok
if kind == 'none' then
  for i = 2, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then return {'other'} end
  end
  if may ~= 'make' then return {'none'} end
  if time == '' then
    local now = redis.call('TIME')
    time = string.format('%.0f', tonumber(now[1]) * 1000000 + tonumber(now[2]))
  end
  redis.call('HSET', meta, 'layout', '1', 'id', id, 'shards', shards, 'shard', shard, 'last', '0',
             'position', '0', 'uses', '0', 'since', time, 'dropped', '0', 'server', server,
             'complete', '0')
elseif kind ~= 'hash' then
  return {'other'}
end
local found = redis.call('HMGET', meta, 'layout', 'id', 'shards', 'shard', 'last', 'server')
if not found[1] or not found[2] or not found[3] or not found[5] then return {'other'} end
if found[1] ~= '1' then return {'layout', found[1]} end
if shards ~= '' and found[3] ~= shards then return {'shards', found[3]} end
if found[4] ~= shard then return {'other'} end
if found[6] ~= server then
  -- Another server, or the same one after a restart, may have lost the latest numbers. The epoch,
  -- their high bits, rises, so that none is given out twice.
  local epoch = math.floor(tonumber(found[5]) / 274877906944) + 1
  redis.call('HSET', meta, 'last', string.format('%.0f', epoch * 274877906944), 'server', server)
end
if done == 'done' then redis.call('HSET', meta, 'complete', '1') end
local now = redis.call('HMGET', meta, 'complete', 'position', 'uses')
return {'ok', found[2], found[3], now[1], string.format('%.0f', now[2] + now[3])}
)lua";

// The state of a call, and the timers.
constexpr const char* kTimers = R"lua(
local META, TIMERS, PAYLOADS, NAMES, QUEUE, MARKED, FAILED, ENDED, RING, ANSWERS, ORDER, SESSIONS,
      USED = unpack(KEYS)
local NEVER = '9223372036854775807'
local call, text = redis.call, string.format
local remembered, sender, full, channel = tonumber(ARGV[3]), ARGV[4], ARGV[5] == 'full', ARGV[6]

local meta = call('HMGET', META, 'id', 'last', 'position', 'uses', 'since', 'dropped', 'server')
if meta[1] ~= ARGV[1] then return redis.error_reply('NOSTORE the store is not there any more') end
if meta[7] ~= ARGV[7] then return redis.error_reply('NEWSERVER the epoch has to rise first') end
local last, position, uses = tonumber(meta[2]), tonumber(meta[3]), tonumber(meta[4])
local since, dropped = tonumber(meta[5]), meta[6] == '1'

local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function pad(number)
  return text('%019.0f', math.max(number, 0))
end
local NOW, AFTER_NOW = pad(now), pad(now + 1)
-- Leases end by the time of this server, which is never changed. Timers are due by the time of the
-- store, so far behind it. Nothing is due as long as nobody knows how far.
local store_now = ARGV[8] == '' and 0 or now - tonumber(ARGV[8])
local DUE, AFTER_DUE = ARGV[8] == '' and NOW or pad(store_now), pad(store_now + 1)

-- Bytes that sort as the text does, and of which none is the beginning of another one.
local function escaped(bytes)
  return (string.gsub(bytes, '%z', '\0\255'))
end
local function base(bytes)
  return escaped(bytes) .. '\0\0'
end
-- The range of everything that begins with these escaped bytes.
local function range(prefix)
  local stem = string.match(prefix, '^(.-)\255*$')
  if stem == '' then return prefix == '' and '-' or '[' .. prefix, '+' end
  return '[' .. prefix, '(' .. string.sub(stem, 1, -2) .. string.char(string.byte(stem, -1) + 1)
end

local earliest, has_marked = NEVER, false  -- what other processes might want to know
local budget = 16000000  -- how many bytes of payloads may still be part of the answers
local cache, changed = {}, {}

local function load(number, packed)
  local p = cmsgpack.unpack(packed)
  return {number = number, name = p[1], kind = p[2], again = p[3], skip = p[4], state = p[5],
          due = p[6], wake = p[7], fence = p[8], attempts = p[9], marked = p[10], blocks = p[11],
          blocked_by = p[12], owner = p[13], reason = p[14]}
end
local function find(number)
  local timer = cache[number]
  if timer == nil then
    local packed = call('HGET', TIMERS, number)
    timer = packed and load(number, packed)
    cache[number] = timer
  end
  return timer
end
local function at(number)
  return find(number) or error('timer ' .. number .. ' is missing')
end
local function touch(timer)
  changed[timer.number] = timer
end
-- Calls a command for many members at once, but not for more than unpack() can return.
local function call_with_all(command, key, members)
  for first = 1, #members, 4000 do
    call(command, key, unpack(members, first, math.min(first + 3999, #members)))
  end
end
local function flush()
  local fields = {}
  for number, t in pairs(changed) do
    fields[#fields + 1] = number
    fields[#fields + 1] = cmsgpack.pack({t.name, t.kind, t.again, t.skip, t.state, t.due, t.wake,
        t.fence, t.attempts, t.marked, t.blocks, t.blocked_by, t.owner, t.reason})
  end
  call_with_all('HSET', TIMERS, fields)
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
  return timer and is_live(timer) and timer.fence == fence and timer
end
-- The numbers of the timers of that name in an index, oldest first.
local function named(index, name)
  local first = base(name)
  local members = call('ZRANGEBYLEX', index, '[' .. first, '(' .. first .. ':')
  for i, member in ipairs(members) do members[i] = string.sub(member, -19) end
  return members
end

local function enqueue(timer)
  call('ZADD', QUEUE, 0, base(timer.kind) .. timer.wake .. timer.number)
  if timer.marked then call('ZADD', MARKED, 0, timer.wake .. timer.number) end
end
local function dequeue(timer)
  if timer.state ~= 'waiting' and timer.state ~= 'leased' then return end
  call('ZREM', QUEUE, base(timer.kind) .. timer.wake .. timer.number)
  if timer.marked then call('ZREM', MARKED, timer.wake .. timer.number) end
end
local function add(name, kind, payload, again, skip, due)
  local number = next_number()
  local timer = {number = number, name = name, kind = kind, again = again, skip = skip,
                 state = 'blocked', due = due, wake = due, fence = number, attempts = 0,
                 marked = false, blocks = '', blocked_by = '', owner = '', reason = ''}
  cache[number] = timer
  call('ZADD', NAMES, 0, base(name) .. number)
  if payload ~= '' then call('HSET', PAYLOADS, number, payload) end
  touch(timer)
  return timer
end
local function payload_of(timer)
  return call('HGET', PAYLOADS, timer.number) or ''
end
local function copy(timer, due)
  return add(timer.name, timer.kind, payload_of(timer), timer.again, timer.skip, due)
end
local function wait_until(timer, wake)
  dequeue(timer)
  timer.state, timer.wake, timer.fence = 'waiting', wake, next_number()
  timer.marked, timer.owner, timer.reason = false, '', ''
  enqueue(timer)
  touch(timer)
  if wake < earliest then earliest = wake end
end
local function block(timer, by)
  timer.state, timer.blocked_by, timer.fence = 'blocked', by.number, next_number()
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
  call('ZREM', NAMES, base(timer.name) .. timer.number)
  call('HDEL', TIMERS, timer.number)
  call('HDEL', PAYLOADS, timer.number)
  cache[timer.number] = false
  changed[timer.number] = nil
end

local function note_end(timer, outcome)
  position = position + 1
  call('HSET', ENDED, timer.name, cmsgpack.pack({timer.number, outcome, NOW, position}))
  call('RPUSH', RING, cmsgpack.pack({timer.name, position, now}))
end
-- Forgets the oldest ends. Some more than were asked for may be kept, so that many can be forgotten
-- by one command. A request that has ended very many timers leaves some of this work to later ones.
local function trim_ended()
  local over = call('LLEN', RING) - remembered
  if over <= math.floor(remembered / 100) then return end
  local oldest, names, gone = call('LPOP', RING, math.min(over, 1000)), {}, {}
  for i, packed in ipairs(oldest) do
    oldest[i] = cmsgpack.unpack(packed)
    names[i] = oldest[i][1]
    since = math.max(since, oldest[i][3] + 1)  -- others may have ended in the same microsecond
  end
  for i, latest in ipairs(call('HMGET', ENDED, unpack(names))) do
    if latest and cmsgpack.unpack(latest)[4] == oldest[i][2] then gone[#gone + 1] = names[i] end
  end
  call_with_all('HDEL', ENDED, gone)
end
local function finish(timer, outcome)
  note_end(timer, outcome)
  release_successor(timer)
  erase(timer)
end
)lua";

// The requests that change timers for a user, and their answers.
constexpr const char* kUsers = R"lua(
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
  local latest = call('HGET', ENDED, name)
  if not latest then return {'unknown', '', '', '', '', 0, '', pad(since)} end
  local ended = cmsgpack.unpack(latest)
  return {'done', ended[1], '', '', '', 0, ended[2], ended[3]}
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
  successor.due, successor.fence = due, next_number()
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
    local p = packed and cmsgpack.unpack(packed)
    session = p and {known = true, count = p[1], place = p[2], forgotten = p[3]} or
              {known = false, count = 0, place = 0, forgotten = ''}
    sessions[id] = session
  end
  return session
end
local function forget_first(id, session, most)
  local first = call('ZRANGEBYLEX', ORDER, '[' .. id, '(' .. id .. ':', 'LIMIT', 0, most)
  local answers = {}
  for i, member in ipairs(first) do
    local number = string.sub(member, -20)
    answers[i] = id .. number
    if number > session.forgotten then session.forgotten = number end
  end
  call_with_all('ZREM', ORDER, first)
  call_with_all('HDEL', ANSWERS, answers)
  session.count = session.count - #first
  return #first > 0
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
  session.place, session.count = session.place + 1, session.count + 1
  call('HSET', ANSWERS, id .. number, packed)
  call('ZADD', ORDER, 0, id .. pad(session.place) .. number)
  local over = session.count - remembered
  -- Some more may be kept, so that many can be forgotten at once.
  if over > math.floor(remembered / 100) then forget_first(id, session, math.min(over, 1000)) end
end
local function flush_sessions()
  for id, session in pairs(sessions) do
    if session.changed then
      call('HSET', SESSIONS, id, cmsgpack.pack({session.count, session.place, session.forgotten}))
    end
  end
end

local function for_user(what, id, number, ...)
  if number == '' then return users[what](...) end
  local earlier = call('HGET', ANSWERS, id .. number)
  if earlier == '' then return {'used', '', 0} end
  if earlier then
    earlier = cmsgpack.unpack(earlier)
    return earlier[1] == what and earlier[2] or {'another', '', 0}
  end
  local result = users[what](...)
  -- What was not stored for want of memory may be tried again.
  if result[1] ~= 'full' then remember(id, number, cmsgpack.pack({what, result})) end
  return result
end
)lua";

// The other requests, and the main part.
constexpr const char* kOthers = R"lua(
local requests = {}
-- Each takes its arguments as one table, because unpack() cannot return many thousands.
function requests.S(arguments) return for_user('schedule', unpack(arguments)) end
function requests.C(arguments) return for_user('cancel', unpack(arguments)) end
function requests.R(arguments) return for_user('reschedule', unpack(arguments)) end
function requests.F(arguments) return for_user('failed', unpack(arguments)) end

-- Asks for an answer.
function requests.A(arguments)
  local id, number = unpack(arguments)
  local earlier = call('HGET', ANSWERS, id .. number)
  if earlier == '' then return {'no'} end
  if earlier then return {'yes', cmsgpack.unpack(earlier)[2]} end
  local session = session_of(id)
  local forgotten = dropped
  if session.known then forgotten = number <= session.forgotten end
  if forgotten or remembered == 0 then return {'forgotten'} end
  remember(id, number, '')
  return {'no'}
end

local function end_cancelled()
  while true do
    local members = call('ZRANGEBYLEX', MARKED, '-', '(' .. AFTER_NOW, 'LIMIT', 0, 100)
    if #members == 0 then return end
    for _, member in ipairs(members) do finish(at(string.sub(member, -19)), 'cancelled') end
  end
end
local function due_between(kind, from, to, max)
  if max <= 0 then return {} end
  return call('ZRANGEBYLEX', QUEUE, '[' .. kind .. from, '(' .. kind .. to, 'LIMIT', 0, max)
end
local function claim(members, owner, lease, claimed)
  for i, member in ipairs(members) do
    if budget <= 0 then return i - 1 end
    local timer = at(string.sub(member, -19))
    dequeue(timer)
    timer.state, timer.wake, timer.fence = 'leased', pad(now + lease), next_number()
    timer.attempts, timer.owner = timer.attempts + 1, owner
    enqueue(timer)
    touch(timer)
    local payload = payload_of(timer)
    budget = budget - #payload - #timer.name - #timer.again - 200
    claimed[#claimed + 1] = {timer.number, timer.fence, timer.name, timer.kind, payload,
                             timer.again, timer.skip, timer.due, timer.wake, timer.attempts}
  end
  return #members
end
local function times_of(members)
  local times = {}
  for i, member in ipairs(members) do times[i] = string.sub(member, -38, -20) end
  return times
end

-- Claims, or only says when what could be claimed is due.
function requests.T(kinds)
  end_cancelled()
  local owner, lease, fresh, peek = unpack(kinds, 1, 4)
  local claimed, seen = {}, {}
  -- What was fresh for the look stays so for the claim.
  local fresh_from = string.match(fresh, '^@(.*)$') or pad(store_now - tonumber(fresh))
  local next_time, more = NEVER, 0
  for i = 5, #kinds, 3 do
    local kind, max, overdue = base(kinds[i]), tonumber(kinds[i + 1]), tonumber(kinds[i + 2])
    if peek == '1' then
      seen[#seen + 1] = times_of(due_between(kind, fresh_from, AFTER_DUE, max))
      seen[#seen + 1] = times_of(due_between(kind, '', fresh_from, math.min(max, overdue)))
    else
      local taken = claim(due_between(kind, fresh_from, AFTER_DUE, max), owner, tonumber(lease),
                          claimed)
      claim(due_between(kind, '', fresh_from, math.min(max - taken, overdue)), owner,
            tonumber(lease), claimed)
    end
  end
  for i = 5, #kinds, 3 do
    local kind = base(kinds[i])
    if #due_between(kind, '', AFTER_DUE, 1) > 0 then more = 1 end
    local following = due_between(kind, AFTER_DUE, ':', 1)[1]
    local time = following and string.sub(following, -38, -20) or NEVER
    if time < next_time then next_time = time end
  end
  return {next_time, more, claimed, seen, fresh_from}
end

-- Finishes a run.
function requests.E(arguments)
  local number, fence, how, next_time, reason = unpack(arguments)
  local timer = find_run(number, fence)
  if not timer then return 0 end
  if how == 'retry' then
    if timer.marked then finish(timer, 'cancelled') else wait_until(timer, next_time) end
    return 1
  end
  local recurs = next_time ~= NEVER and not timer.marked and timer.blocks == ''
  if how == 'failed' then
    note_end(timer, 'failed')
    dequeue(timer)
    timer.state, timer.marked, timer.owner, timer.reason = 'failed', false, '', reason
    call('ZADD', FAILED, 0, base(timer.name) .. number)
    release_successor(timer)
    if recurs then wait_until(copy(timer, next_time), next_time) end
    if next_time ~= NEVER then timer.again = '' end
    touch(timer)
  elseif recurs then
    timer.due, timer.attempts = next_time, 0
    wait_until(timer, next_time)
  else
    finish(timer, how)
  end
  return 1
end

-- Extends leases.
function requests.X(runs)
  local lease, result = runs[1], {}
  for i = 2, #runs, 2 do
    local timer = find_run(runs[i], runs[i + 1])
    if timer then
      dequeue(timer)
      timer.wake = pad(now + tonumber(lease))
      enqueue(timer)
      touch(timer)
      result[#result + 1] = {1, timer.marked and 1 or 0, timer.wake}
    else
      result[#result + 1] = {0, 0, ''}
    end
  end
  return result
end

-- Counts.
function requests.N(arguments)
  return call('ZLEXCOUNT', NAMES, range(escaped(arguments[1])))
end

-- Lists.
function requests.L(arguments)
  local index, prefix, follows, after_name, after_number, most = unpack(arguments)
  local first, past = range(escaped(prefix))
  if follows == '1' then first = '(' .. base(after_name) .. after_number end
  local max, result = tonumber(most), {0}
  while true do
    local members = call('ZRANGEBYLEX', index == 'failed' and FAILED or NAMES, first, past,
                         'LIMIT', 0, math.min(max + 1, 200))
    if #members == 0 then return result end
    for _, member in ipairs(members) do
      if #result > max or (budget <= 0 and #result > 1) then
        result[1] = 1
        return result
      end
      local timer = at(string.sub(member, -19))
      local payload, live = payload_of(timer), is_live(timer)
      local stage = timer.state
      if stage == 'leased' then stage = live and 'running' or 'waiting' end
      budget = budget - #payload - #timer.name - #timer.reason - 200
      result[#result + 1] = {timer.number, timer.name, timer.kind, payload, timer.due, stage,
                             timer.attempts, live and timer.owner or '', timer.reason}
    end
    first = '(' .. members[#members]
  end
end

-- Looks at what is there.
function requests.K(arguments)
  local handled = {}
  for i = 2, #arguments do handled[base(arguments[i])] = true end
  local before = pad(store_now - tonumber(arguments[1]))
  local overdue, unhandled, first = 0, 0, '-'
  while true do
    local member = call('ZRANGEBYLEX', QUEUE, first, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind = string.sub(member, 1, -39)
    local count = call('ZLEXCOUNT', QUEUE, '[' .. kind, '(' .. kind .. before)
    overdue = overdue + count
    if not handled[kind] then unhandled = unhandled + count end
    first = '[' .. kind .. ':'
  end
  return {call('ZCARD', NAMES), overdue, unhandled}
end

local replies = {text('%.0f', now), ''}
local i = 9
while ARGV[i] do
  local count = tonumber(ARGV[i + 1])
  local arguments = {}
  for n = 1, count do arguments[n] = ARGV[i + 1 + n] end
  replies[#replies + 1] = requests[ARGV[i]](arguments)
  trim_ended()
  i = i + 2 + count
end
flush()
flush_sessions()
local after = {text('%.0f', last), text('%.0f', position), text('%.0f', uses),
               text('%.0f', since), dropped and '1' or '0'}
for n = 1, 5 do
  if after[n] ~= meta[n + 1] then
    call('HSET', META, 'last', after[1], 'position', after[2], 'uses', after[3], 'since', after[4],
         'dropped', after[5])
    break
  end
end
replies[2] = text('%.0f', position + uses)
-- Other processes look once a second anyway.
if has_marked or earliest <= pad(now + 1100000) then redis.pcall('PUBLISH', channel, sender) end
return replies
)lua";

std::string with_flags(const char* first_line) {
  return std::string(first_line) + kTimers + kUsers + kOthers;
}

}  // namespace

const std::string& redis_store_opening() {
  static const std::string script = kOpening;
  return script;
}

const std::string& redis_store_script() {
  static const std::string script = with_flags("#!lua\n");
  return script;
}

const std::string& redis_store_script_when_full() {
  static const std::string script = with_flags("#!lua flags=allow-oom\n");
  return script;
}

}  // namespace workflow

#include "store/RedisStoreScripts.h"

#include "store/RedisStoreScriptParts.h"

namespace workflow {

namespace {

// A script that the server stops in the middle would leave half of what it does. So a user who may
// not run all commands of the scripts is refused before anything is done. Each command is asked for
// with arguments that it takes, because a server may look for its keys or count them. If the server
// does not have the command, that raises an error. This takes the server 2.5 µs; a table of the
// commands would take three times as long.
constexpr const char* kRights = R"lua(
local may, key = redis.acl_check_cmd, KEYS[1]
local function may_run_all()
  return may('HSET', key, '', '') and may('HDEL', key, '') and may('HGET', key, '') and
         may('HMGET', key, '') and may('HINCRBY', key, '', '1') and may('HEXISTS', key, '') and
         may('ZADD', key, '0', '') and may('ZREM', key, '') and may('ZCARD', key) and
         may('ZRANGE', key, '0', '0') and may('ZRANGEBYLEX', key, '-', '+') and
         may('ZLEXCOUNT', key, '-', '+') and may('LPUSH', key, '') and may('LPOP', key) and
         may('LRANGE', key, '0', '0') and may('RPUSH', key, '') and may('TIME') and
         may('EXISTS', key) and may('TYPE', key)
end
local known, may_all = pcall(may_run_all)
if not known or not may_all then
  return redis.error_reply('NOPERM the user may not run a command that a store needs: HSET, HDEL, HGET, ' ..
    'HMGET, HINCRBY, HEXISTS, ZADD, ZREM, ZCARD, ZRANGE, ZRANGEBYLEX, ZLEXCOUNT, LPUSH, LPOP, LRANGE, ' ..
    'RPUSH, TIME, EXISTS or TYPE')
end
)lua";

constexpr const char* kOpening = R"lua(
local id, shards, shard, may, server, time, done, session, remembered, known = unpack(ARGV)
local meta = KEYS[1]
if time == '' then
  local now = redis.call('TIME')
  time = string.format('%.0f', tonumber(now[1]) * 1000000 + tonumber(now[2]))
end
local kind = redis.call('TYPE', meta).ok
if kind == 'none' then
  for i = 2, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then return {'other'} end
  end
  if may ~= 'make' then return {'none'} end
  redis.call('HSET', meta, 'layout', '3', 'id', id, 'shards', shards, 'shard', shard, 'last', '0',
             'position', '0', 'uses', '0', 'since', time, 'dropped', '0', 'ends', '0',
             'answers', '0', 'server', server, 'complete', '0', 'time', time)
elseif kind ~= 'hash' then
  return {'other'}
end
local found = redis.call('HMGET', meta, 'layout', 'id', 'shards', 'shard', 'last', 'server', 'time')
if not found[1] or not found[2] or not found[3] or not found[5] then return {'other'} end
if found[1] ~= '3' then return {'layout', found[1]} end
if shards ~= '' and found[3] ~= shards then return {'shards', found[3]} end
if found[4] ~= shard or not found[7] then return {'other'} end
-- What is known of another store does not count.
local last, highest = tonumber(found[5]), found[2] == id and tonumber(known) or 0
local rises = found[6] ~= server or last < highest
if rises then
  -- Another server, or the same one after a restart, may have lost the latest numbers. The epoch
  -- rises, so that none is given out twice: past all that may have been given out since `time`.
  -- That is less than one number in a microsecond, and 2^30 more if the clocks of the servers
  -- differ. Whatever the clocks say, 2^38 are enough.
  local since = tonumber(time) - tonumber(found[7])
  last = math.max(last, highest) + 1073741824 + math.min(math.max(since, 0), 274877906944)
end
-- As in every script.
if last > 9007197107257344 then return redis.error_reply('USEDUP the numbers are used up') end
if rises then
  redis.call('HSET', meta, 'last', string.format('%.0f', last), 'server', server, 'time', time)
end
if done == 'done' then redis.call('HSET', meta, 'complete', '1') end
-- Which session this is, from its first opening on. So what it asks for is known to be new, however
-- many sessions were forgotten before. A store is opened again without this: a session that was
-- forgotten meanwhile stays so.
if session and session ~= '' and redis.call('HEXISTS', KEYS[12], session) == 0 then
  local used = redis.call('HINCRBY', meta, 'uses', 1)
  redis.call('HSET', KEYS[12], session, cmsgpack.pack(0, 0, 0, '', '', ''))
  redis.call('ZADD', KEYS[13], used, session)
  -- Processes may come and go and ask for nothing, so that no request forgets them. Of the sessions
  -- before the latest 256 (MAX_SESSIONS in RedisStoreUsersScript.cc) those are forgotten here that
  -- have no answers.
  local many = math.min(redis.call('ZCARD', KEYS[13]) - 256, 512)
  local oldest = many > 0 and redis.call('ZRANGE', KEYS[13], 0, many - 1) or {}
  for _, old in ipairs(oldest) do
    local packed = redis.call('HGET', KEYS[12], old)
    if not packed or select(3, cmsgpack.unpack(packed)) == 0 then
      redis.call('HDEL', KEYS[12], old)
      redis.call('ZREM', KEYS[13], old)
      redis.call('HSET', meta, 'dropped', '1')
    end
  end
end
-- The largest of all processes bounds what all sessions together remember.
local most = tonumber(redis.call('HGET', meta, 'remembered') or 0)
if remembered and remembered ~= '' and tonumber(remembered) > most then
  redis.call('HSET', meta, 'remembered', remembered)
end
local now = redis.call('HMGET', meta, 'complete', 'position', 'uses')
return {'ok', found[2], found[3], now[1], string.format('%.0f', now[2] + now[3]),
        string.format('%.0f', last)}
)lua";

// The other requests.
constexpr RedisStoreScriptPart kRequests{
    R"lua(
local requests = {}
-- What most requests have is left out at the end of their arguments, or is empty.
local function mine(id)
  return (not id or id == '') and sender or id
end
function requests.S(number, name, kind, due, what, policy, again, skip, id)
  return for_user('S', mine(id), number, name, kind, due, what, policy, again, skip)
end
function requests.C(number, name, most, id)
  return for_user('C', mine(id), number, name, most)
end
function requests.R(number, name, most, due, change, again, id)
  return for_user('R', mine(id), number, name, most, due, change, again)
end
function requests.F(number, name, remove, id)
  return for_user('F', mine(id), number, name, remove)
end

-- Asks for an answer.
function requests.A(number, id)
  local letter, result = earlier_answer(id, number)
  if letter == '' then return {'no'} end
  if letter then return {'yes', letter, result} end
  local session = session_of(id)
  local forgotten = dropped
  if session.known then forgotten = number <= session.forgotten end
  if forgotten or remembered == 0 then return {'forgotten'} end
  remember(id, number, '', 0)
  return {'no'}
end

-- Ends timers that were cancelled while they ran, and whose leases have ended since. So many are ended
-- at a time, because the server answers nobody meanwhile. If there are more, the next claims end them.
local function end_cancelled()
  settle(MARKED)
  local members = call('ZRANGEBYLEX', MARKED, '-', '(' .. AFTER_NOW, 'LIMIT', 0, 1000)
  local numbers = {}
  for i, member in ipairs(members) do numbers[i] = string.sub(member, -19) end
  fetch(numbers)
  for _, number in ipairs(numbers) do finish(at(number), 'cancelled') end
end
local function due_between(kind, from, to, max)
  if max <= 0 then return {} end
  settle(QUEUE)
  return call('ZRANGEBYLEX', QUEUE, '[' .. kind .. from, '(' .. kind .. to, 'LIMIT', 0, max)
end
local function claim(members, owner, lease_end, claimed)
  local numbers = {}
  for i, member in ipairs(members) do numbers[i] = string.sub(member, -19) end
  fetch(numbers)
  for i, number in ipairs(numbers) do
    if budget <= 0 then return end
    last = last + 1
    local name, kind, payload, due, claimable, state
    if type(cache[number]) == 'string' then
      name, kind, payload, due, claimable, state = cmsgpack.unpack(cache[number])
    end
    if name and not state then
      put_gone(QUEUE, members[i])
      put_fresh(QUEUE, base(kind) .. lease_end .. number)
      put_fresh(LEASED, lease_end .. number)
      put_record(number, pack_running(name, kind, payload, due, short(lease_end), last, 1, owner))
      payload = payload or payload_in_server(number)
      budget = budget - #payload - #name - 200
      claimed[#claimed + 1] = {number, last, name, kind, payload, due, claimable or due}
    elseif at(number).marked then
      finish(at(number), 'cancelled')
    else
      local timer = at(number)
      claimable = timer.wake  -- since then
      put(QUEUE, members[i], false)  -- also if it is not what the timer says
      dequeue(timer)
      timer.state, timer.wake, timer.fence = 'leased', lease_end, last
      timer.attempts, timer.owner = timer.attempts + 1, owner
      enqueue(timer)
      touch(timer)
      payload = payload_of(timer)
      budget = budget - #payload - #timer.name - #timer.again - 200
      claimed[#claimed + 1] = {number, last, timer.name, timer.kind, payload, timer.due, claimable,
                               timer.attempts, timer.again, timer.skip}
    end
  end
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
  local found, claimed, peeked, lease_end = {}, {}, {}, pad(now + tonumber(lease))
  -- What was fresh for the look stays so for the claim.
  local fresh_from = string.match(fresh, '^@(.*)$') or pad(store_now - tonumber(fresh))
  local next_time, more = NEVER, 0
  for i = 5, #kinds, 3 do
    local kind, max, overdue = base(kinds[i]), tonumber(kinds[i + 1]), tonumber(kinds[i + 2])
    if peek == '1' then
      peeked[#peeked + 1] = times_of(due_between(kind, fresh_from, AFTER_DUE, max))
      peeked[#peeked + 1] = times_of(due_between(kind, '', fresh_from, math.min(max, overdue)))
    else
      local taken = due_between(kind, fresh_from, AFTER_DUE, max)
      found[#found + 1] = taken
      found[#found + 1] = due_between(kind, '', fresh_from, math.min(max - #taken, overdue))
    end
  end
  -- To look for what is due, the script writes what is to become of QUEUE. Now it does so only when
  -- no timer can be missing any more.
  local takes = 0
  for _, members in ipairs(found) do
    claim(members, owner, lease_end, claimed)
    takes = takes + #members
  end
  for i = 5, #kinds, 3 do
    local kind = base(kinds[i])
    if #due_between(kind, '', AFTER_DUE, 1) > 0 then more = 1 end
    local following = due_between(kind, AFTER_DUE, ':', 1)[1]
    local time = following and string.sub(following, -38, -20) or NEVER
    if time < next_time then next_time = time end
  end
  -- The payloads were too large for one answer, or some of what was found had been cancelled.
  local again = #claimed < takes and more or 0
  return {next_time, more, claimed, peeked, fresh_from, lease_end, again}
end

-- Finishes a run for good, if its lease is live and there is nothing special about the timer.
-- Returns whether it has.
local function finish_usual_run(number, fence)
  local packed = cache[number]
  if type(packed) ~= 'string' then return false end
  local name, kind, payload, due, wake, state, its_fence, _, _, is_special =
      cmsgpack.unpack(packed)
  if state ~= 'leased' or is_special or its_fence ~= tonumber(fence) then return false end
  wake = long(wake or due)
  if NOW >= wake then return false end
  finish_usual(number, name, kind, payload, wake, 'done')
  put_gone(LEASED, wake .. number)
  return true
end
-- Finishes a run.
function requests.E(number, fence, how, next_time, reason)
  if not how and finish_usual_run(number, fence) then return 1 end
  how, next_time = how or 'done', next_time or NEVER
  local timer = find_run(number, fence)
  if not timer then return 0 end
  if how == 'retry' then
    if timer.marked then finish(timer, 'cancelled') else wait_until(timer, next_time) end
    return 1
  end
  local recurs = next_time ~= NEVER and not timer.marked and timer.blocks == ''
  if how == 'failed' then
    note_end(number, timer.name, 'failed')
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
  local lease, numbers, result = runs[1], {}, {}
  for i = 2, #runs, 2 do numbers[#numbers + 1] = runs[i] end
  fetch(numbers)
  looked_at = looked_at + #numbers
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
function requests.N(prefix)
  settle(NAMES)
  return call('ZLEXCOUNT', NAMES, range(escaped(prefix)))
end

-- Lists.
function requests.L(index, prefix, follows, after_name, after_number, most)
  local first, past = range(escaped(prefix))
  if follows == '1' then first = '(' .. base(after_name) .. after_number end
  local max, result = tonumber(most), {0}
  settle(NAMES)
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
      local payload = timer.payload or call('HGET', PAYLOADS, timer.number) or ''
      local live = is_live(timer)
      local stage = timer.state
      if stage == 'leased' then stage = live and 'running' or 'waiting' end
      budget = budget - #payload - #timer.name - #timer.reason - 200
      result[#result + 1] = {timer.number, timer.name, timer.kind, payload, timer.due, stage,
                             timer.attempts, live and timer.owner or '', timer.reason}
    end
    first = '(' .. members[#members]
  end
end

-- Looks at what is there. Every store does so from time to time, so sessions are forgotten also where
-- nobody asks for anything.
function requests.K(arguments)
  trim_sessions()
  local handled = {}
  for i = 2, #arguments do handled[base(arguments[i])] = true end
  local before = pad(store_now - tonumber(arguments[1]))
  local due, overdue, unhandled, first = 0, 0, 0, '-'
  for _, key in ipairs({NAMES, QUEUE, LEASED}) do settle(key) end
  while true do
    local member = call('ZRANGEBYLEX', QUEUE, first, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind = string.sub(member, 1, -39)
    local count = call('ZLEXCOUNT', QUEUE, '[' .. kind, '(' .. kind .. before)
    due = due + call('ZLEXCOUNT', QUEUE, '[' .. kind, '(' .. kind .. AFTER_DUE)
    overdue = overdue + count
    if not handled[kind] then unhandled = unhandled + count end
    first = '[' .. kind .. ':'
  end
  return {call('ZCARD', NAMES), due, overdue, unhandled,
          call('ZLEXCOUNT', LEASED, '[' .. AFTER_NOW, '+'), call('ZCARD', FAILED)}
end

)lua",
    "requests"};

constexpr const char* kMain = R"lua(
-- What many requests look for is read at once.
fetch({cmsgpack.unpack(ARGV[10])})
look_ahead({cmsgpack.unpack(ARGV[11])})

local replies = {text('%.0f', now), '', ''}
local function carry_out(is_first, letter, ...)
  -- A claim stops the script if it meets damage. What comes before it is done then.
  if letter == 'T' and not is_first then write_all() end
  return requests[letter](...)
end
for i = 12, #ARGV do
  if looked_at >= 2000 then break end
  replies[i - 8] = carry_out(i == 12, cmsgpack.unpack(ARGV[i]))
  trim_ended()
end
write_all()
replies[2], replies[3] = text('%.0f', position + uses), text('%.0f', last)
-- Other processes look once a second anyway.
if has_marked or earliest <= pad(now + 1100000) then redis.pcall('PUBLISH', channel, sender) end
return replies
)lua";

std::string text_of(const RedisStoreScriptPart& part) {
  return std::string("local ") + part.gives + " = (function()" + part.body + "return " +
         part.gives + "\nend)()\n";
}

std::string with_flags(const char* first_line) {
  return std::string(first_line) + kRights + kRedisStoreState + text_of(kRedisStoreTimers) +
         text_of(kRedisStoreUsers) + text_of(kRequests) + kMain;
}

}  // namespace

// The scripts are never destroyed. At exit the library stops after the static objects that were
// made later than it have been destroyed, and its stores may still need a script then.

const std::string& redis_store_opening() {
  static const std::string& script =
      *new std::string(std::string("#!lua flags=allow-oom\n") + kRights + kOpening);
  return script;
}

const std::string& redis_store_script() {
  static const std::string& script = *new std::string(with_flags("#!lua\n"));
  return script;
}

const std::string& redis_store_script_when_full() {
  static const std::string& script = *new std::string(with_flags("#!lua flags=allow-oom\n"));
  return script;
}

}  // namespace workflow

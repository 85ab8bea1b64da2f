#include "store/RedisStoreScriptParts.h"

namespace workflow {

const RedisStoreScriptPart kRedisStoreUsers{
    R"lua(
-- How many timers a request may be about. While a script runs, the server answers nobody. So many
-- take less than the silence after which it counts as replaced: see RedisStoreLink::kSilenceUs.
-- After some thousand a script leaves the requests that follow to the next one.
local MOST = 20000
local function has_too_many(name, max)
  if max <= MOST or seen[name] then return false end
  local first = base(name)
  local from, to = '[' .. first, '(' .. first .. ':'
  -- What this script has added so far is much less than the other half.
  if call('ZLEXCOUNT', NAMES, from, to) < MOST / 2 then return false end
  settle(NAMES)
  return call('ZLEXCOUNT', NAMES, from, to) - call('ZLEXCOUNT', FAILED, from, to) > MOST
end
-- What has become of a timer. For one that was won before its first run this is its number alone.
local function answer(timer, verdict)
  if verdict == 'running' or verdict == 'after_run' then
    return {verdict, timer.number, timer.owner, timer.fence, pad(tonumber(timer.wake) - now),
            timer.attempts, '', ''}
  end
  if verdict == 'won' and timer.attempts == 0 then return tonumber(timer.number) end
  return {verdict, timer.number, '', '', '', timer.attempts, '', ''}
end
local function answer_won(timer)
  return answer(timer, timer.state == 'leased' and 'won_after' or 'won')
end
local function answer_gone(name)
  local latest = latest_end(name)
  if not latest then return {'unknown', '', '', '', '', 0, '', since} end
  local number, outcome, time = cmsgpack.unpack(latest)
  return {'done', number, '', '', '', 0, outcome, time}
end
-- Ends a timer that waits for its first run if nothing about it is special. Returns the answer if it
-- has.
local function win_usual(number, name)
  local kind, payload, wake = usual_one(number)
  if not kind then return end
  finish_usual(number, name, kind, payload, wake, 'cancelled')
  return tonumber(number)
end
local function win(timer)
  local result = answer_won(timer)
  finish(timer, 'cancelled')
  return result
end

-- Returns the newest timer of the name that runs.
local function replace(name, result)
  local others = {}
  -- Blocked ones end before what blocks them does, so that none of them is released.
  for numbers in pages(name, math.huge) do
    for _, number in ipairs(numbers) do
      local state = usual_one(number) and 'waiting' or at(number).state
      if state == 'blocked' then
        finish(at(number), 'cancelled')
      elseif state ~= 'failed' then
        others[#others + 1] = number
      end
    end
  end
  local running
  for _, number in ipairs(others) do
    local ended = win_usual(number, name)
    local timer = not ended and at(number)
    if timer and is_live(timer) then
      ended, running = answer(timer, 'after_run'), timer
    end
    result[#result + 1] = ended or win(timer)
  end
  if #others == 0 then result[#result + 1] = answer_gone(name) end
  return running
end
local function has_living(name)
  for numbers in pages(name, 1) do
    for _, number in ipairs(numbers) do
      if usual_one(number) or at(number).state ~= 'failed' then return true end
    end
  end
  return false
end

local function shortened(result)
  return #result == 4 and type(result[4]) == 'number' and result[4] or result
end

-- What users ask, by its letter. Each returns {error, number of a timer, count, answers...}, or for
-- what is most common only a number: that of the timer that was stored, that of the only timer that
-- was won before its first run, or how many failed timers there were.
local users = {}

-- `what`: a packed timer if nothing is said about `skip`, otherwise a payload.
function users.S(name, kind, due, what, policy, again, skip)
  if full then return {'full', '', 0} end
  if not skip or skip == '' then return add_usual(name, kind, what, due) end
  local result = {'', '', 0}
  local running
  if policy == 'keep' then
    if has_living(name) then return {'exists', '', 0} end
  elseif policy == 'replace' then
    if has_too_many(name, math.huge) then return {'many', '', 0} end
    running = replace(name, result)
  end
  local timer = add(name, kind, what, again, skip, due)
  result[2] = timer.number
  if running then
    block(timer, running)
  else
    wait_until(timer, due)
  end
  return result
end

-- Ends the only timer of a name that was read ahead, as most are. Returns the answer if it has.
local function win_only(name)
  local members = seen[name]
  if not members or #members ~= 1 or added_names[name] then return end
  local number = string.sub(members[1], -19)
  return not has_left[number] and win_usual(number, name)
end
function users.C(name, most)
  local max = tonumber(most) or math.huge
  local only = max > 0 and win_only(name)
  if only then return only end
  local result = {'', '', 0}
  if has_too_many(name, max) then return {'many', '', 0} end
  for numbers in pages(name, max) do
    for _, number in ipairs(numbers) do
      if #result - 3 >= max then return result end
      -- What an earlier one of them has blocked may be waiting by now.
      local ended = win_usual(number, name)
      local timer = not ended and at(number)
      if ended then
        result[#result + 1] = ended
      elseif is_live(timer) then
        result[#result + 1] = answer(timer, 'running')
        dequeue(timer)
        timer.marked = true
        enqueue(timer)
        touch(timer)
        has_marked = true
      elseif timer.state ~= 'failed' then
        result[#result + 1] = win(timer)
      end
    end
    if #result - 3 >= max then break end
  end
  if #result == 3 and max > 0 then result[4] = answer_gone(name) end
  return shortened(result)
end

local function move_successor(running, due, changes, again)
  if running.blocks == '' then block(copy(running, due), running) end
  local successor = at(running.blocks)
  if changes then successor.again = again end
  last, successor.due = last + 1, due
  touch(successor)
end
function users.R(name, most, due, change, again)
  local result = {'', '', 0}
  local max, changes = tonumber(most) or math.huge, change == '1'
  if has_too_many(name, max) then return {'many', '', 0} end
  for numbers in pages(name, max) do
    for _, number in ipairs(numbers) do
      if #result - 3 >= max then return result end
      local kind, payload, wake = usual_one(number)
      local timer = (changes or not kind) and at(number)
      if not timer then
        result[#result + 1] = tonumber(number)
        move_usual(number, name, kind, payload, wake, due)
      elseif is_live(timer) then
        result[#result + 1] = answer(timer, 'after_run')
        move_successor(timer, due, changes, again)
      elseif timer.state ~= 'blocked' and timer.state ~= 'failed' then
        result[#result + 1] = answer_won(timer)
        if timer.state == 'leased' then timer.attempts = 0 end
        if changes then timer.again = again end
        timer.due = due
        wait_until(timer, due)
      end
    end
    if #result - 3 >= max then break end
  end
  if #result == 3 and max > 0 then result[4] = answer_gone(name) end
  return shortened(result)
end

function users.F(name, remove)
  local first = base(name)
  local members = call('ZRANGEBYLEX', FAILED, '[' .. first, '(' .. first .. ':', 'LIMIT', 0, MOST)
  local numbers = {}
  for i, member in ipairs(members) do numbers[i] = string.sub(member, -19) end
  fetch(numbers)
  looked_at = looked_at + #numbers
  call_with_all('ZREM', FAILED, members)
  for _, number in ipairs(numbers) do
    local timer = at(number)
    if remove == '1' then
      erase(timer)
    else
      timer.attempts, timer.due = 0, DUE
      wait_until(timer, DUE)
    end
  end
  return #numbers
end

-- The answers that are remembered. A bucket has those to requests of a session whose numbers differ
-- only in the last two digits. It is a field of ANSWERS, named by the session and the other digits.
-- For each answer it has three values: the last two digits, the letter of the request and its
-- result, in the order in which they came. The letter of an id that was asked for and not found is
-- empty. ORDER has the buckets of a session in the order in which they were made, by places without
-- a gap. They are forgotten in that order, so only the latest bucket takes answers. An answer gets
-- a bucket of its own, named by all digits, if its number is too low for that, or if it is too long
-- to be written again with each that follows. After that, the others of its hundred do as well.
local sessions = {}
local function session_of(id)
  local session = sessions[id]
  if not session then
    local packed = call('HGET', SESSIONS, id)
    session = {known = false, count = 0, place = 0, buckets = 0, forgotten = '', highest = '',
               latest = ''}
    if packed then
      session.known = true
      session.count, session.place, session.buckets, session.forgotten, session.highest,
          session.latest = cmsgpack.unpack(packed)
    end
    sessions[id] = session
  end
  return session
end
-- The buckets that this script has looked at, by their fields, and those with new answers in order.
local buckets, all_buckets = {}, {}
local function bucket_of(id, start)
  local field = id .. start
  local bucket = buckets[field]
  if not bucket then
    local session, packed = session_of(id), false
    -- Most requests have a higher number than all that their session has asked before. If such a
    -- number begins a bucket, there is nothing to be read.
    if start <= session.highest then packed = call('HGET', ANSWERS, field) end
    bucket = {id = id, start = start, field = field, packed = packed, added = {}, size = 0}
    buckets[field] = bucket
  end
  return bucket
end
local function learn(bucket, values)
  for i = 1, #values, 3 do
    bucket.letters[values[i]], bucket.results[values[i]] = values[i + 1], values[i + 2]
  end
end
-- The letter and the result of an earlier request, or nothing.
local function earlier_answer(id, number)
  if number > session_of(id).highest then return end
  local digits = tonumber(string.sub(number, -2))
  for _, start in ipairs({string.sub(number, 1, -3), number}) do
    local bucket = bucket_of(id, start)
    if not bucket.letters then
      bucket.letters, bucket.results = {}, {}
      if bucket.packed then learn(bucket, {cmsgpack.unpack(bucket.packed)}) end
      learn(bucket, bucket.added)
    end
    if bucket.letters[digits] then return bucket.letters[digits], bucket.results[digits] end
  end
end
local used, all_sessions = {}, nil
local function write_answers()
  local answers, order = {}, {}
  for _, bucket in ipairs(all_buckets) do
    if not bucket.packed then
      local session = session_of(bucket.id)
      session.place, session.buckets = session.place + 1, session.buckets + 1
      order[#order + 1], order[#order + 2] = bucket.id .. session.place, bucket.start
    end
    answers[#answers + 1] = bucket.field
    answers[#answers + 1] = (bucket.packed or '') .. cmsgpack.pack(unpack(bucket.added))
  end
  call_with_all('HSET', ANSWERS, answers)
  call_with_all('HSET', ORDER, order)
  call_with_all('ZADD', USED, used)
  buckets, all_buckets, used = {}, {}, {}
end
-- Whether a bucket is for one answer. Such an answer may be long, so it is forgotten unread.
local function is_single(start) return #start == 20 end
-- Forgets the first answers of a session: at most `most`, and at least `least` if it has so many.
local function forget_first(id, session, most, least)
  while least > 0 and session.buckets > 0 do
    -- As many buckets as should have so many.
    local expected = math.ceil(most * session.buckets / session.count)
    local places, shared, gone, whole = {}, {}, {}, {}
    for i = 1, math.min(expected, session.buckets) do
      places[i] = id .. (session.place - session.buckets + i)
    end
    local starts = get_all(ORDER, places)
    for _, start in ipairs(starts) do
      if not is_single(start) then shared[#shared + 1] = id .. start end
    end
    local read, next_read = get_all(ANSWERS, shared), 0
    for i, start in ipairs(starts) do
      local field, values, size = id .. start, nil, 1
      if not is_single(start) then
        next_read = next_read + 1
        values = read[next_read] and {cmsgpack.unpack(read[next_read])} or {}
        size = #values / 3
      end
      local count = math.min(size, most)
      -- A bucket is divided only if it must be.
      if count < size and least <= 0 then break end
      local number = start
      if values then
        local highest = 0
        for n = 1, 3 * count, 3 do
          highest = math.max(highest, values[n])
        end
        number = start .. text('%02d', highest)
      end
      if count > 0 and number > session.forgotten then session.forgotten = number end
      most, least = most - count, least - count
      session.count, all_answers = session.count - count, all_answers - count
      if count < size then
        call('HSET', ANSWERS, field, cmsgpack.pack(unpack(values, 3 * count + 1)))
        break
      end
      gone[#gone + 1], whole[i] = field, places[i]
    end
    call_with_all('HDEL', ANSWERS, gone)
    call_with_all('HDEL', ORDER, whole)
    session.buckets, session.changed = session.buckets - #whole, true
  end
end
-- Forgets answers of the session that was used the longest ago, and itself with the last.
local function forget_oldest(most, least)
  local oldest = call('ZRANGE', USED, 0, 0)[1]
  local session = session_of(oldest)
  forget_first(oldest, session, most, least)
  if session.buckets > 0 then return end
  call('HDEL', SESSIONS, oldest)
  call('ZREM', USED, oldest)
  sessions[oldest], all_sessions, dropped = nil, all_sessions - 1, true
end
-- There are at most so many sessions, and all together have at most four times as many answers as the
-- process remembers that remembers most.
local MAX_SESSIONS, MAX_ANSWERS = 256, 4 * math.max(remembered, tonumber(meta[10] or 0))
local function count_sessions()
  all_sessions = all_sessions or call('ZCARD', USED)
  return all_sessions
end
local function trim_sessions()
  if count_sessions() > MAX_SESSIONS then
    write_answers()
    forget_oldest(1000, 1000)
  end
end
-- Forgets what is too much. Some more may be kept, so that many can be forgotten at once. No
-- request has to forget very many: what is left over is for the next ones.
local function trim_answers(id, session)
  local over, all_over = session.count - remembered, all_answers - MAX_ANSWERS
  if over <= some_more and all_over <= some_more and all_sessions <= MAX_SESSIONS then return end
  write_answers()
  if over > some_more then
    forget_first(id, session, math.min(over, 1000), math.min(over - some_more, 1000))
    all_over = all_answers - MAX_ANSWERS
  end
  if all_sessions > MAX_SESSIONS then
    forget_oldest(1000, 1000)
  elseif all_over > some_more then
    forget_oldest(math.min(all_over, 1000), math.min(all_over - some_more, 1000))
  end
end
local function remember(id, number, letter, result)
  if remembered == 0 then return end
  local session, start = session_of(id), string.sub(number, 1, -3)
  local others = count_sessions()
  if not session.known then
    session.known, all_sessions = true, others + 1
    if dropped then session.forgotten = number end  -- it may have been dropped earlier
  end
  session.changed = true
  if not session.used then
    session.used = true
    uses = uses + 1
    used[#used + 1], used[#used + 2] = uses, id
  end
  local is_low = start ~= session.latest and start <= string.sub(session.highest, 1, -3)
  if is_low or (type(result) == 'table' and #result > 13) then start = number end
  local bucket = bucket_of(id, start)
  session.latest = start
  if bucket.size == 0 then all_buckets[#all_buckets + 1] = bucket end
  session.count, all_answers = session.count + 1, all_answers + 1
  if number > session.highest then session.highest = number end
  local added, n, digits = bucket.added, bucket.size, tonumber(string.sub(number, -2))
  added[n + 1], added[n + 2], added[n + 3] = digits, letter, result
  bucket.size = n + 3
  if bucket.letters then bucket.letters[digits], bucket.results[digits] = letter, result end
  trim_answers(id, session)
end
local function write_sessions()
  for id, session in pairs(sessions) do
    if session.changed then
      call('HSET', SESSIONS, id,
           cmsgpack.pack(session.count, session.place, session.buckets, session.forgotten,
                         session.highest, session.latest))
      session.changed = false
    end
  end
end
-- Writes whatever has changed, and the counters of the shard.
local function write_all()
  flush()
  settle_ended()
  write_answers()
  write_sessions()
  local after = {text('%.0f', last), text('%.0f', position), text('%.0f', uses),
                 text('%.0f', since), dropped and '1' or '0', text('%.0f', ring_length),
                 text('%.0f', all_answers)}
  local is_new = false
  for n = 1, 7 do
    is_new = is_new or after[n] ~= meta[n + 1]
    meta[n + 1] = after[n]
  end
  if is_new then
    call('HSET', META, 'last', after[1], 'position', after[2], 'uses', after[3], 'since', after[4],
         'dropped', after[5], 'ends', after[6], 'answers', after[7], 'time', NOW)
  end
end

local function for_user(letter, id, number, ...)
  if number == '' then return users[letter](...) end
  local earlier, result = earlier_answer(id, number)
  if earlier == '' then return {'used', '', 0} end
  if earlier then return earlier == letter and result or {'another', '', 0} end
  result = users[letter](...)
  -- What was not stored for want of memory may be tried again.
  if type(result) == 'number' or result[1] ~= 'full' then remember(id, number, letter, result) end
  return result
end
)lua",
    "session_of, earlier_answer, remember, trim_sessions, for_user, write_all"};

}  // namespace workflow

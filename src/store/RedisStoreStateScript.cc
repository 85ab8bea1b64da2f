#include "store/RedisStoreScriptParts.h"

namespace workflow {

const char* const kRedisStoreState = R"lua(
local META, TIMERS, PAYLOADS, NAMES, QUEUE, MARKED, FAILED, ENDED, RING, ANSWERS, ORDER, SESSIONS,
      USED, LEASED = unpack(KEYS)
local NEVER = '9223372036854775807'
local call, text = redis.call, string.format
local remembered, sender, full, channel = tonumber(ARGV[3]), ARGV[4], ARGV[5] == 'full', ARGV[6]

local meta = call('HMGET', META, 'id', 'last', 'position', 'uses', 'since', 'dropped', 'ends',
                  'answers', 'server', 'remembered')
if meta[1] ~= ARGV[1] then return redis.error_reply('NOSTORE the store is not there any more') end
local last, position, uses = tonumber(meta[2]), tonumber(meta[3]), tonumber(meta[4])
if meta[9] ~= ARGV[7] or last < tonumber(ARGV[9]) then
  return redis.error_reply('NEWSERVER the epoch has to rise first')
end
local since, dropped = tonumber(meta[5]), meta[6] == '1'
-- Lua counts exactly up to 2^53. That leaves 2^31 numbers, more than one script can give out.
if last > 9007197107257344 then return redis.error_reply('USEDUP the numbers are used up') end
local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function pad(number)
  return text('%019d', number > 0 and number or 0)
end
local NOW, AFTER_NOW = pad(now), pad(now + 1)
-- Leases end by the time of this server, which is never changed. Timers are due by the time of the
-- store, so far behind it. Nothing is due as long as nobody knows how far.
local store_now = ARGV[8] == '' and 0 or now - tonumber(ARGV[8])
local DUE, AFTER_DUE = ARGV[8] == '' and NOW or pad(store_now), pad(store_now + 1)

-- Bytes that sort as the text does, and of which none is the beginning of another one.
local function escaped(bytes)
  return string.find(bytes, '\0', 1, true) and (string.gsub(bytes, '%z', '\0\255')) or bytes
end
local bases = {}
local function base(bytes)
  local known = bases[bytes]
  if not known then
    known = escaped(bytes) .. '\0\0'
    bases[bytes] = known
  end
  return known
end
-- The range of everything that begins with these escaped bytes.
local function range(prefix)
  local stem = string.match(prefix, '^(.-)\255*$')
  if stem == '' then return prefix == '' and '-' or '[' .. prefix, '+' end
  return '[' .. prefix, '(' .. string.sub(stem, 1, -2) .. string.char(string.byte(stem, -1) + 1)
end

local earliest, has_marked = NEVER, false  -- what other processes might want to know
local budget = 16000000  -- how many bytes of payloads may still be part of the answers
local cache, changed, erased, has_left = {}, {}, {}, {}
local added_names = {}  -- those that `seen` does not have in full
local looked_at = 0     -- how many timers of names the requests of this script have looked at
local ring_length, all_answers = tonumber(meta[7]), tonumber(meta[8])
-- So many more than were asked for may be remembered, so that many are forgotten by one command.
local some_more = math.floor(remembered / 100)

-- Calls a command for many members at once, but not for more than unpack() can return.
local function call_with_all(command, key, members)
  for first = 1, #members, 4000 do
    call(command, key, unpack(members, first, math.min(first + 3999, #members)))
  end
end
-- What is in a hash for each of these fields, or false.
local function get_all(key, fields)
  local found = {}
  for first = 1, #fields, 4000 do
    local last_one = math.min(first + 3999, #fields)
    for i, value in ipairs(call('HMGET', key, unpack(fields, first, last_one))) do
      found[first + i - 1] = value
    end
  end
  return found
end

-- A command costs more than what it does to one member. So members of sorted sets are added and
-- removed together, at the end of the script or before somebody reads the set. Until then this is
-- what is to become of them: `later` has a key to a member to whether it stays. Members with a new
-- number or a new lease, of which nothing was said before, are in `fresh` with their scores. They
-- are added first. Then those in `gone` are removed, of timers that were known by their texts
-- alone.
local later = {}
local fresh = {[NAMES] = {}, [QUEUE] = {}, [LEASED] = {}}
local fresh_count = {[NAMES] = 0, [QUEUE] = 0, [LEASED] = 0}
local seen = {}  -- a name to its members in NAMES, if they were read ahead and are still true
local function put_fresh(key, member)
  local members, n = fresh[key], fresh_count[key]
  members[n + 1], members[n + 2] = '0', member
  fresh_count[key] = n + 2
end
local gone = {[NAMES] = {}, [QUEUE] = {}, [LEASED] = {}}
local gone_count = {[NAMES] = 0, [QUEUE] = 0, [LEASED] = 0}
local function put_gone(key, member)
  local members = later[key]
  if members and members[member] then
    members[member] = false
    return
  end
  local n = gone_count[key] + 1
  gone[key][n], gone_count[key] = member, n
end
local function put(key, member, stays)
  local members = later[key]
  if not members then
    members = {}
    later[key] = members
  end
  members[member] = stays
end
local function settle(key)
  if (fresh_count[key] or 0) > 0 then
    call_with_all('ZADD', key, fresh[key])
    fresh[key], fresh_count[key] = {}, 0
  end
  if (gone_count[key] or 0) > 0 then
    call_with_all('ZREM', key, gone[key])
    gone[key], gone_count[key] = {}, 0
  end
  if key == NAMES then seen = {} end
  local members = later[key]
  if not members then return end
  later[key] = nil
  local added, removed, n = {}, {}, 0
  for member, stays in pairs(members) do
    if stays then
      added[n + 1], added[n + 2] = '0', member
      n = n + 2
    else
      removed[#removed + 1] = member
    end
  end
  call_with_all('ZREM', key, removed)
  call_with_all('ZADD', key, added)
end
)lua";

}  // namespace workflow

-- KEYS: 1 lane, 2 lease, 3 leases, 4 wake-ups that no worker has taken, 5 free slots, 6 version of all content.
-- ARGV: 1 the lane's name, 2 ms of a lease, 3 ms until the sweep sends a lost wake-up again; a script's own follow.
-- Times come from Redis alone: no clock orders anything.
local LEASES, WAKEUPS, FREE, CONTENT = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local LEASE_MS, KICK_MS = tonumber(ARGV[2]), tonumber(ARGV[3])
local OWN = {name = ARGV[1], turns = KEYS[1], lease = KEYS[2]}
local ASSIGNED = 'loom:assigned:'  -- of each slot: the lane it was given, see keys.py
local TRIES = 8  -- wake-ups that a free slot looks at, until one is of a lane that nobody runs

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function other(name)
  local function of(key)
    return string.sub(key, 1, #key - #OWN.name) .. name
  end
  return {name = name, turns = of(OWN.turns), lease = of(OWN.lease)}
end

local function deadline_in(lane, ms)
  redis.call('ZADD', LEASES, string.format('%.0f', now_ms() + ms), lane.name)
end

local function is_ours(lane, token)
  return redis.call('HGET', lane.lease, 'token') == token
end

local function is_empty(lane)
  return redis.call('EXISTS', lane.turns) == 0
end

local function last_seq(lane)
  return tonumber(redis.call('ZRANGE', lane.turns, -1, -1, 'WITHSCORES')[2] or '0')
end

local function content()
  return redis.call('GET', CONTENT) or ''
end

local function become_idle(lane)
  redis.call('DEL', lane.lease)
  redis.call('ZREM', LEASES, lane.name)
end

local function become_kicked(lane, ms, kicks)
  redis.call('HDEL', lane.lease, 'token', 'again', 'alert')
  redis.call('HSET', lane.lease, 'state', 'kicked', 'kicks', kicks)
  deadline_in(lane, ms)
end

local function become_running(lane, token)
  redis.call('HSET', lane.lease, 'state', 'running', 'token', token, 'kicks', 0)
  redis.call('HDEL', lane.lease, 'again', 'alert')  -- who runs it reads the turn's row after this
  deadline_in(lane, LEASE_MS)
end

-- False while it is running or parked under a live lease.
local function take(lane, token)
  local state = redis.call('HGET', lane.lease, 'state')
  if state == 'running' or state == 'parked' then
    local deadline = tonumber(redis.call('ZSCORE', LEASES, lane.name) or '0')
    if deadline > now_ms() then
      return false
    end
  end
  become_running(lane, token)
  return true
end

-- Of the process with most free slots, which is the least busy one, the slot that was busy last. Of two with as many the
-- one that was busy longer ago: so all take turns, and learn of new content. A slot's name is its process' name, a
-- hyphen and its number.
local function free_slot()
  local count, latest, place, best = {}, {}, {}, nil
  for n, slot in ipairs(redis.call('ZRANGEBYSCORE', FREE, string.format('(%.0f', now_ms()), '+inf')) do
    local process = string.match(slot, '^(.*)%-')
    count[process], latest[process], place[process] = (count[process] or 0) + 1, slot, n
  end
  for process, free in pairs(count) do
    if not best or free > count[best] or (free == count[best] and place[process] < place[best]) then
      best = process
    end
  end
  return best and latest[best]
end

-- 0: a free slot has the lane now. 1: none is free, so send a wake-up.
local function wake(lane)
  local slot = free_slot()
  if not slot then
    become_kicked(lane, KICK_MS, 0)
    return 1
  end
  redis.call('ZREM', FREE, slot)
  become_running(lane, slot)
  redis.call('RPUSH', ASSIGNED .. slot, string.format('%s %.0f %s', lane.name, last_seq(lane), content()))
  redis.call('PEXPIRE', ASSIGNED .. slot, LEASE_MS)
  return 0
end

-- The lane that a free slot is to run: that of the wake-up that has waited longest. Without one nil, and the slot counts
-- as free for wait_ms (0: not at all).
local function next_lane(slot, wait_ms)
  for _ = 1, TRIES do
    local message = redis.call('RPOP', WAKEUPS)
    if not message then
      break
    end
    local name = string.find(message, '"task": "loom.turn.run"', 1, true)
      and string.match(message, '"argsrepr": "%(\'(%x+)\',%)"')
    if not name then
      redis.call('RPUSH', WAKEUPS, message)  -- another message of this queue: Celery brings it
      break
    end
    local lane = other(name)
    if take(lane, slot) then
      return lane
    end
  end
  if wait_ms > 0 then
    redis.call('ZREMRANGEBYSCORE', FREE, '-inf', string.format('%.0f', now_ms()))
    redis.call('ZADD', FREE, string.format('%.0f', now_ms() + wait_ms), slot)
  end
  return nil
end

-- Put (seq, turn) pairs, from a place in ARGV on, on a lane. 1: send a wake-up. 0: one is under way, or a free slot has
-- the lane, or its worker will see the turn when it gives the lane back. Adding a turn twice changes nothing.
local function submit(lane, place, behind)
  for i = place, behind - 1, 2 do
    redis.call('ZADD', lane.turns, 'NX', ARGV[i], ARGV[i + 1])
  end
  if redis.call('EXISTS', lane.lease) == 1 or is_empty(lane) then
    return 0
  end
  return wake(lane)
end

-- Drop all turns up to seq from a lane that is given back. 1: it has more, so a wake-up must be sent. 0: it has none, or
-- a free slot has it.
-- Dropping what has ended and asking for more is one step, or a turn that arrives in between would be stranded. A lower
-- turn that is still here was ended by a worker that died before it came to say so.
local function complete(lane, seq)
  redis.call('ZREMRANGEBYSCORE', lane.turns, '-inf', seq)
  if is_empty(lane) then
    become_idle(lane)
    return 0
  end
  return wake(lane)
end

-- All turns up to seq have ended. Where the slot goes on, the lane stays with it if it has more turns and no other lane
-- waits; else it gets another lane, or waits for one. Returns: the lane that it has now ('' for none), the token it has it
-- by, and the lane's highest seq; the version of all content; 1 if a wake-up must be sent for the lane given back.
local function advance(lane, token, seq, slot, wait_ms)
  local must_wake, goes_on = 0, slot ~= ''
  if is_ours(lane, token) then
    local last = last_seq(lane)
    if goes_on and last > tonumber(seq) and redis.call('EXISTS', WAKEUPS) == 0 then
      redis.call('ZREMRANGEBYSCORE', lane.turns, '-inf', seq)
      redis.call('HDEL', lane.lease, 'again', 'alert')
      deadline_in(lane, LEASE_MS)
      return {lane.name, token, last, content(), 0}
    end
    must_wake = complete(lane, seq)
  end
  local found = goes_on and next_lane(slot, wait_ms)
  if found then
    return {found.name, slot, last_seq(found), content(), must_wake}
  end
  return {'', '', 0, '', must_wake}
end

-- KEYS: 1 lane, 2 lease, 3 leases. ARGV 1: the lane's name. Times come from Redis alone: no clock orders anything.
local LANE, LEASE, LEASES, NAME = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function deadline_in(ms)
  redis.call('ZADD', LEASES, string.format('%.0f', now_ms() + ms), NAME)
end

local function become_idle()
  redis.call('DEL', LEASE)
  redis.call('ZREM', LEASES, NAME)
end

local function become_kicked(ms, kicks)
  redis.call('HDEL', LEASE, 'token', 'again', 'alert')
  redis.call('HSET', LEASE, 'state', 'kicked', 'kicks', kicks)
  deadline_in(ms)
end

local function is_ours(token)
  return redis.call('HGET', LEASE, 'token') == token
end

local function is_empty()
  return redis.call('EXISTS', LANE) == 0
end

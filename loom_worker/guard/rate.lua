-- KEYS: 1 the times (µs) of the last calls, newest first, at most as many as may be made. ARGV: 1 calls, 2 per_us.
-- {µs to wait, calls that are left, µs until there is one more}. Without a wait this call is counted. Times come from
-- Redis alone.
local TIMES, CALLS, PER_US = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local newest = tonumber(redis.call('LINDEX', TIMES, 0) or '0')
if newest > now + PER_US then  -- the clock was set back far: those times say nothing any more
  redis.call('DEL', TIMES)
else
  now = math.max(now, newest)
end

local function time_of(n)
  return tonumber(redis.call('LINDEX', TIMES, n) or '-inf')
end

-- How many of the calls are less than the period ago; they are in order, so halving finds it.
local function counted()
  local low, high = 0, math.min(redis.call('LLEN', TIMES), CALLS)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if time_of(middle) + PER_US >= now then low = middle + 1 else high = middle end
  end
  return low
end

-- The call that is CALLS before this one must be more than the period ago.
local wait_us = time_of(CALLS - 1) + PER_US - now
if wait_us >= 0 then
  return {wait_us + 1, 0, wait_us + 1}
end
redis.call('LPUSH', TIMES, string.format('%.0f', now))
redis.call('LTRIM', TIMES, 0, CALLS - 1)
redis.call('PEXPIRE', TIMES, math.ceil(PER_US / 1000) + 1)
local made = counted()
return {0, CALLS - made, time_of(made - 1) + PER_US - now + 1}

-- KEYS: 1 the times (µs) of the last calls, newest first, at most as many as may be made. ARGV: 1 calls, 2 per_us.
-- 0: this call may be made, and is counted. Otherwise the µs after which one may. Times come from Redis alone.
local TIMES, CALLS, PER_US = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local newest = tonumber(redis.call('LINDEX', TIMES, 0) or '0')
if newest > now + PER_US then  -- the clock was set back far: those times say nothing any more
  redis.call('DEL', TIMES)
else
  now = math.max(now, newest)
end

-- The call that is CALLS before this one must be more than the period ago.
local earlier = redis.call('LINDEX', TIMES, CALLS - 1)
local wait_us = earlier and tonumber(earlier) + PER_US - now or -1
if wait_us >= 0 then
  return wait_us + 1
end
redis.call('LPUSH', TIMES, string.format('%.0f', now))
redis.call('LTRIM', TIMES, 0, CALLS - 1)
redis.call('PEXPIRE', TIMES, math.ceil(PER_US / 1000) + 1)
return 0

-- ARGV: 4 max_kick_ms, 5 spares (1: leave running turns to their owners). 1: send a wake-up. 0: the lane is idle, or
-- its lease was renewed meanwhile.
-- KEYS 7: since when the longest unanswered wake-up is; whoever sees that one unanswered once more prolongs it.
-- The lease loses its token here, so that its owner, should it only sleep, finds that it has lost it.
local deadline = tonumber(redis.call('ZSCORE', LEASES, OWN.name) or 'inf')
if deadline > now_ms() then
  return 0
end
local state = redis.call('HGET', OWN.lease, 'state')
if state == 'running' and ARGV[5] == '1' then
  return 0
end
if is_empty(OWN) and (state == 'kicked' or not state) then
  become_idle(OWN)
  return 0
end
local max_kick_ms = tonumber(ARGV[4])
local kicks = tonumber(redis.call('HGET', OWN.lease, 'kicks') or '0') + 1
if kicks == 1 then  -- what was sent before may never have arrived; from now on the sweep itself sends
  redis.call('HSET', OWN.lease, 'since', string.format('%.0f', now_ms()))
else
  local since = redis.call('HGET', OWN.lease, 'since')
  local oldest = redis.call('GET', KEYS[7])
  if since and (not oldest or tonumber(since) <= tonumber(oldest)) then
    redis.call('SET', KEYS[7], since, 'PX', 2 * max_kick_ms)  -- it is seen every max_kick_ms and a sweep
  end
end
become_kicked(OWN, math.min(KICK_MS * 2 ^ math.min(kicks, 10), max_kick_ms), kicks)
return 1

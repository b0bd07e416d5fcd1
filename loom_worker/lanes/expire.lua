-- ARGV: name, kick_ms, max_kick_ms, spares (1: leave running turns to their owners). 1: ring. 0: the lane is idle, or
-- its lease was renewed meanwhile.
-- KEYS 4: since when the longest unanswered doorbell is; whoever sees that one unanswered once more prolongs it.
-- The lease loses its token here, so that its owner, should it only sleep, finds that it has lost it.
local deadline = tonumber(redis.call('ZSCORE', LEASES, NAME) or 'inf')
if deadline > now_ms() then
  return 0
end
local state = redis.call('HGET', LEASE, 'state')
if state == 'running' and ARGV[4] == '1' then
  return 0
end
if is_empty() and (state == 'kicked' or not state) then
  become_idle()
  return 0
end
local kicks = tonumber(redis.call('HGET', LEASE, 'kicks') or '0') + 1
if kicks == 1 then  -- what was rung before may never have been sent; from now on the sweep itself rings
  redis.call('HSET', LEASE, 'since', string.format('%.0f', now_ms()))
else
  local since = redis.call('HGET', LEASE, 'since')
  local oldest = redis.call('GET', KEYS[4])
  if since and (not oldest or tonumber(since) <= tonumber(oldest)) then
    redis.call('SET', KEYS[4], since, 'PX', 2 * tonumber(ARGV[3]))  -- it is seen every max_kick_ms and a sweep
  end
end
become_kicked(math.min(tonumber(ARGV[2]) * 2 ^ math.min(kicks, 10), tonumber(ARGV[3])), kicks)
return 1

-- ARGV: name, token, ttl_ms, is_late. 1: renewed. 2: renewed, and alerted since the last time. 0: lost to another.
-- 3: it is gone, and too late to be written again.
-- A lease that is gone was lost with Redis' memory, for only its owner ends a live one: it is written again. It
-- is not if the last renewal is older than ttl_ms, so a worker that slept does not come back this way.
if redis.call('EXISTS', LEASE) == 0 then
  if ARGV[4] == '1' then
    return 3
  end
  redis.call('HSET', LEASE, 'state', 'running', 'token', ARGV[2], 'kicks', 0)
elseif not is_ours(ARGV[2]) then
  return 0
end
if redis.call('HGET', LEASE, 'state') == 'running' then
  deadline_in(tonumber(ARGV[3]))
end
return 1 + redis.call('HDEL', LEASE, 'alert')

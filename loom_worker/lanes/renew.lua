-- ARGV: 4 token, 5 is_late. 1: renewed. 2: renewed, and alerted since the last time. 0: lost to another.
-- 3: it is gone, and too late to be written again.
-- A lease that is gone was lost with Redis' memory, for only its owner ends a live one: it is written again. It
-- is not if the last renewal is older than a lease, so a worker that slept does not come back this way.
if redis.call('EXISTS', OWN.lease) == 0 then
  if ARGV[5] == '1' then
    return 3
  end
  redis.call('HSET', OWN.lease, 'state', 'running', 'token', ARGV[4], 'kicks', 0)
elseif not is_ours(OWN, ARGV[4]) then
  return 0
end
if redis.call('HGET', OWN.lease, 'state') == 'running' then
  deadline_in(OWN, LEASE_MS)
end
return 1 + redis.call('HDEL', OWN.lease, 'alert')

-- ARGV: name, token, ttl_ms. The lane's highest seq (0 if it has none): the lease is ours.
-- -1: the lane is running or parked under a live lease.
local state = redis.call('HGET', LEASE, 'state')
if state == 'running' or state == 'parked' then
  local deadline = tonumber(redis.call('ZSCORE', LEASES, NAME) or '0')
  if deadline > now_ms() then
    return -1
  end
end
redis.call('HSET', LEASE, 'state', 'running', 'token', ARGV[2], 'kicks', 0)
redis.call('HDEL', LEASE, 'again', 'alert')  -- it reads the turn's row after this
deadline_in(tonumber(ARGV[3]))
local last = redis.call('ZRANGE', LANE, -1, -1, 'WITHSCORES')
return tonumber(last[2] or '0')

-- ARGV: name, kick_ms, max_kick_ms. 1: ring. 0: the lane is idle, or its lease was renewed meanwhile.
-- The lease loses its token here, so that its owner, should it only sleep, finds that it has lost it.
local deadline = tonumber(redis.call('ZSCORE', LEASES, NAME) or 'inf')
if deadline > now_ms() then
  return 0
end
local state = redis.call('HGET', LEASE, 'state')
if is_empty() and (state == 'kicked' or not state) then
  become_idle()
  return 0
end
local kicks = tonumber(redis.call('HGET', LEASE, 'kicks') or '0') + 1
become_kicked(math.min(tonumber(ARGV[2]) * 2 ^ math.min(kicks, 10), tonumber(ARGV[3])), kicks)
return 1

-- ARGV: name, kick_ms. 1: ring. 0: its owner hears of it with the next renewal, or a doorbell is under way.
-- The row of the lane's turn has changed (a cancel): whoever runs it must look, whoever waits must not.
local state = redis.call('HGET', LEASE, 'state')
if state == 'running' then
  redis.call('HSET', LEASE, 'alert', 1)
  return 0
end
if state == 'kicked' then
  return 0
end
become_kicked(tonumber(ARGV[2]), 0)
return 1

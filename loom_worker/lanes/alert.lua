-- 1: send a wake-up. 0: its owner hears of it with the next renewal, or a wake-up is under way, or a free slot has it.
-- The row of the lane's turn has changed (a cancel): whoever runs it must look, whoever waits must not.
local state = redis.call('HGET', OWN.lease, 'state')
if state == 'running' then
  redis.call('HSET', OWN.lease, 'alert', 1)
  return 0
end
if state == 'kicked' then
  return 0
end
return wake(OWN)

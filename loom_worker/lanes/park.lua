-- ARGV: 4 token, 5 ms until the sweep wakes it. 1: parked, or a free slot has it, for it was woken meanwhile.
-- 2: woken or alerted meanwhile, send a wake-up at once. 0: lost to another.
if not is_ours(OWN, ARGV[4]) then
  return 0
end
if redis.call('HGET', OWN.lease, 'again') or redis.call('HGET', OWN.lease, 'alert') then
  return 1 + wake(OWN)
end
redis.call('HSET', OWN.lease, 'state', 'parked')
deadline_in(OWN, tonumber(ARGV[5]))
return 1

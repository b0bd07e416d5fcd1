-- ARGV: name, kick_ms, then (seq, turn) pairs. 1: the lane was idle, ring its doorbell. 0: a doorbell is under way,
-- or a worker will see the turn when it releases the lane. Adding a turn twice changes nothing.
for i = 3, #ARGV, 2 do
  redis.call('ZADD', LANE, 'NX', ARGV[i], ARGV[i + 1])
end
if redis.call('EXISTS', LEASE) == 1 or is_empty() then
  return 0
end
become_kicked(tonumber(ARGV[2]), 0)
return 1

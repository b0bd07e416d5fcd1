-- ARGV: name, token, seq, kick_ms, ttl_ms. KEYS 4: the doorbells that wait for a worker. -1: lost to another. 0: idle.
-- -2: there is more, ring. Else there is more and the lease stays ours: the lane's highest seq.
-- As long as no bell of another lane waits, a lane's own next bell would only be carried to Celery and back.
if not is_ours(ARGV[2]) then
  return -1
end
redis.call('ZREMRANGEBYSCORE', LANE, '-inf', ARGV[3])
if is_empty() then
  become_idle()
  return 0
end
if redis.call('EXISTS', KEYS[4]) == 1 then
  become_kicked(tonumber(ARGV[4]), 0)
  return -2
end
redis.call('HDEL', LEASE, 'again', 'alert')
deadline_in(tonumber(ARGV[5]))
return tonumber(redis.call('ZRANGE', LANE, -1, -1, 'WITHSCORES')[2])

-- ARGV: name, token, ms. 1: parked. 2: a wake or an alert came meanwhile, ring at once. 0: lost to another.
if not is_ours(ARGV[2]) then
  return 0
end
if redis.call('HGET', LEASE, 'again') or redis.call('HGET', LEASE, 'alert') then
  become_kicked(tonumber(ARGV[3]), 0)
  return 2
end
redis.call('HSET', LEASE, 'state', 'parked')
deadline_in(tonumber(ARGV[3]))
return 1

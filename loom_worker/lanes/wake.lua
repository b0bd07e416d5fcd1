-- ARGV: name, kick_ms, ticket. 1: ring. 0: nothing to do: it runs, or a doorbell is under way.
-- Two signals tell of the same thing (the last tool result, the chord's body): the ticket makes them one.
local state = redis.call('HGET', LEASE, 'state')
local is_known = redis.call('HGET', LEASE, 'woken') == ARGV[3]
redis.call('HSET', LEASE, 'woken', ARGV[3])
if state == 'running' then
  if not is_known then
    redis.call('HSET', LEASE, 'again', 1)
  end
  return 0
end
if state == 'kicked' then
  return 0
end
become_kicked(tonumber(ARGV[2]), 0)
return 1

-- ARGV: 4 ticket. 1: send a wake-up. 0: nothing to do: it runs, or a wake-up is under way, or a free slot has it now.
-- Two signals tell of the same thing (the last tool result, the chord's body): the ticket makes them one.
local state = redis.call('HGET', OWN.lease, 'state')
local is_known = redis.call('HGET', OWN.lease, 'woken') == ARGV[4]
redis.call('HSET', OWN.lease, 'woken', ARGV[4])
if state == 'running' then
  if not is_known then
    redis.call('HSET', OWN.lease, 'again', 1)
  end
  return 0
end
if state == 'kicked' then
  return 0
end
return wake(OWN)

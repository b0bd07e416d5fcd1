-- KEYS: 1 free slots, 2 what the slot was assigned. ARGV: slot.
-- The slot is not free any more. What it was assigned just before; '': nothing.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
  return ''
end
return redis.call('LPOP', KEYS[2]) or ''

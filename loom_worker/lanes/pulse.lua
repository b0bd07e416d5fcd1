-- KEYS: 1 pulse, 2 grace. ARGV: gap_ms, lease_ms. 0: leases may have run out only because Redis itself stood still.
-- Somebody calls this several times a second, so a long gap means that nobody could renew anything. Owners then get the
-- time of one lease to do so; the next gap counts only after as long again, so that a slow machine expires leases too.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local last_ms = tonumber(redis.call('GET', KEYS[1]) or now_ms)
local lease_ms = tonumber(ARGV[2])
redis.call('SET', KEYS[1], string.format('%.0f', now_ms))
if now_ms - last_ms > tonumber(ARGV[1]) then
  redis.call('SET', KEYS[2], '', 'NX', 'PX', 2 * lease_ms)
end
return redis.call('PTTL', KEYS[2]) > lease_ms and 0 or 1

-- KEYS: 1 stream, 2 gone. ARGV: 1 ttl_s, 2 fence, 3 id before the first event, 4 is_final, 5 bytes of all ended logs, then
-- (type, data) pairs.
-- 0, or -3 with nothing written: the turn's session is deleted.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return -3
end
redis.call('UNLINK', KEYS[1])
local last, bytes = tonumber(ARGV[3]), 0
for i = 6, #ARGV, 2 do
  last, bytes = add(KEYS[1], last, bytes, ARGV[i], ARGV[i + 1], ARGV[2])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
if ARGV[4] == '1' then
  keep_ended(KEYS[1], bytes, ARGV[1], tonumber(ARGV[5]))
end
tell(KEYS[1], last, ARGV[4] == '1')
return 0

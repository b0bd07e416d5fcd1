-- KEYS: 1 stream, 2 end. ARGV: ttl_s, least (-1: only if empty), is_final, then (type, data) pairs. The last id, or
-- -1: nothing written. Ids are 1, 2, 3… without gaps, whoever writes; a stream shorter than `least` has been lost and
-- must be restored. Who only waits for the end reads the second stream, and is not woken by every word.
local last = 0
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if tail[1] then
  last = tonumber(string.match(tail[1][1], '^%d+'))
end
local least = tonumber(ARGV[2])
if last < least or (least == -1 and last > 0) then
  return -1
end
for i = 4, #ARGV, 2 do
  last = last + 1
  redis.call('XADD', KEYS[1], string.format('%d-0', last), 't', ARGV[i], 'd', ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
if ARGV[3] == '1' then
  redis.call('XADD', KEYS[2], '*', 'last', last)
  redis.call('EXPIRE', KEYS[2], ARGV[1])
end
return last

-- KEYS: 1 stream, 2 end, 3 who wrote how much. ARGV: ttl_s, least (-1: only if empty), fence (0: whoever), is_final,
-- the writer ('': unnamed), how many events it had written before these, then (type, data) pairs.
-- The last id, or, with nothing written: -1: the stream is shorter than `least`, so it was lost and must be restored;
-- -2: an owner with a higher fence has written. Ids are 1, 2, 3… without gaps, whoever writes. Who only waits for the
-- end reads the second stream, and is not woken by every word.
local last, fence = 0, tonumber(ARGV[3])
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if tail[1] then
  last = tonumber(string.match(tail[1][1], '^%d+'))
  local highest = tonumber(tail[1][2][6] or '0')  -- the fields are t, d, f
  if fence > 0 and fence < highest then
    return -2
  end
  fence = math.max(fence, highest)
end
local least = tonumber(ARGV[2])
if last < least or (least == -1 and last > 0) then
  return -1
end
-- A Redis that stood still answers nobody in time, and then runs what was sent twice: what is there is not added again.
local writer, before, skipped = ARGV[5], tonumber(ARGV[6]), 0
if writer ~= '' then
  local whose, written = string.match(redis.call('GET', KEYS[3]) or '', '^(%w+) (%d+)$')
  written = whose == writer and tonumber(written) or 0
  skipped = math.max(written - before, 0)
  local whole = math.max(before + (#ARGV - 6) / 2, written)
  redis.call('SET', KEYS[3], string.format('%s %.0f', writer, whole), 'EX', ARGV[1])
end
if 7 + 2 * skipped > #ARGV then
  return last
end
for i = 7 + 2 * skipped, #ARGV, 2 do
  last = last + 1
  redis.call('XADD', KEYS[1], string.format('%d-0', last), 't', ARGV[i], 'd', ARGV[i + 1], 'f', fence)
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
if ARGV[4] == '1' then
  redis.call('XADD', KEYS[2], '*', 'last', last)
  redis.call('EXPIRE', KEYS[2], ARGV[1])
end
return last

-- KEYS: 1 stream, 2 end, 3 gone, 4 who wrote how much. ARGV: 1 ttl_s while it runs, 2 ttl_s after the end, 3 max_bytes,
-- 4 least (-1: only if empty), 5 fence (0: whoever), 6 is_final, 7 the writer ('': unnamed), 8 how many events it had
-- written before these, then (type, data) pairs.
-- The last id, or, with nothing written: -1: the stream is shorter than `least`, so it was lost and must be restored;
-- -2: an owner with a higher fence has written; -3: the turn's session is deleted. Ids are 1, 2, 3… without gaps,
-- whoever writes. Who only waits for the end reads the second stream, and is not woken by every word.
if redis.call('EXISTS', KEYS[3]) == 1 then
  return -3
end
local last, bytes, fence = 0, 0, tonumber(ARGV[5])
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if tail[1] then
  last = tonumber(string.match(tail[1][1], '^%d+'))
  bytes = tonumber(tail[1][2][8] or '0')  -- the fields are t, d, f, b
  local highest = tonumber(tail[1][2][6] or '0')
  if fence > 0 and fence < highest then
    return -2
  end
  fence = math.max(fence, highest)
end
local least = tonumber(ARGV[4])
if last < least or (least == -1 and last > 0) then
  return -1
end
-- A Redis that stood still answers nobody in time, and then runs what was sent twice: what is there is not added again.
local writer, before, skipped = ARGV[7], tonumber(ARGV[8]), 0
if writer ~= '' then
  local whose, written = string.match(redis.call('GET', KEYS[4]) or '', '^(%w+) (%d+)$')
  written = whose == writer and tonumber(written) or 0
  skipped = math.max(written - before, 0)
  local whole = math.max(before + (#ARGV - 8) / 2, written)
  redis.call('SET', KEYS[4], string.format('%s %.0f', writer, whole), 'EX', ARGV[1])
end
if 9 + 2 * skipped > #ARGV then
  return last
end
for i = 9 + 2 * skipped, #ARGV, 2 do
  last, bytes = add(KEYS[1], last, bytes, ARGV[i], ARGV[i + 1], fence)
end
if bytes > tonumber(ARGV[3]) then  -- of all events so far: mostly fewer, and nothing needs to be read
  trim(KEYS[1], last, bytes, tonumber(ARGV[3]))
end
if ARGV[6] == '1' then
  redis.call('XADD', KEYS[2], '*', 'last', last)
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  redis.call('EXPIRE', KEYS[2], ARGV[2])
  redis.call('EXPIRE', KEYS[4], ARGV[2])
else
  redis.call('EXPIRE', KEYS[1], ARGV[1])
end
tell(KEYS[1], last, ARGV[6] == '1')
return last

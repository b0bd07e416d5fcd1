-- Each entry has the fields t (type), d (data), f (fence) and b: the bytes of all events so far, so that what a stream
-- holds is the difference of two entries, whoever trimmed it.
local OVERHEAD = 64  -- bytes of an entry beside its type and data, about
local ENDED_LOGS = 'loom:ended-logs'  -- see keep_ended

local function size(kind, data)
  return #kind + #data + OVERHEAD
end

local function add(stream, last, bytes, kind, data, fence)
  last = last + 1
  bytes = bytes + size(kind, data)
  redis.call('XADD', stream, string.format('%d-0', last), 't', kind, 'd', data, 'f', fence, 'b', bytes)
  return last, bytes
end

-- Drop the oldest events until the rest has max_bytes at the most; the last one stays whatever it has.
local function trim(stream, last, bytes, max_bytes)
  local count = 1  -- the oldest one may stay; only where it goes are more of them read
  while true do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', count)
    local kept = nil
    for _, entry in ipairs(oldest) do
      local fields = entry[2]
      local before = tonumber(fields[8] or '0') - size(fields[2], fields[4])
      if bytes - before <= max_bytes then
        kept = entry[1]
        break
      end
    end
    if kept == oldest[1][1] then
      return
    end
    local newest = tonumber(string.match(oldest[#oldest][1], '^%d+'))
    if kept == nil and newest == last then
      kept = oldest[#oldest][1]
    end
    if kept then
      redis.call('XTRIM', stream, 'MINID', kept)
      return
    end
    redis.call('XTRIM', stream, 'MINID', string.format('%d-0', newest + 1))
    count = 50
  end
end

-- Tell readers that a log has changed (its last id now), and those who wait for a turn's end that it came.
local function tell(stream, last, has_ended)
  local turn = string.sub(stream, #'loom:events:' + 1)
  redis.call('PUBLISH', 'loom:news:' .. turn, last)
  if has_ended then
    redis.call('PUBLISH', 'loom:ended', turn)
  end
end

-- Keep the log of a turn that has ended for ttl_s, and the logs of all of them together below total bytes: those that
-- ended first go before their time. A log is its journal told again, so readers lose nothing.
-- An entry is the log's stream, its bytes, those of all logs until then, and when it expires.
local function keep_ended(stream, bytes, ttl_s, total)
  local now_s = tonumber(redis.call('TIME')[1])
  local sum = bytes + tonumber(string.match(redis.call('LINDEX', ENDED_LOGS, -1) or '', '^%S+ %d+ (%d+)') or '0')
  local own = string.format('%s %.0f %.0f %.0f', stream, bytes, sum, now_s + ttl_s)
  redis.call('RPUSH', ENDED_LOGS, own)
  redis.call('EXPIRE', ENDED_LOGS, ttl_s + 1)
  local oldest = redis.call('LINDEX', ENDED_LOGS, 0)
  while oldest ~= own do
    local its_stream, its_bytes, its_sum, until_s = string.match(oldest, '^(%S+) (%d+) (%d+) (%d+)$')
    local has_expired = tonumber(until_s) <= now_s  -- or does within the second
    if not has_expired and sum - its_sum + its_bytes <= total then
      break
    end
    if not has_expired and its_stream ~= stream then  -- ours was written again meanwhile
      redis.call('UNLINK', its_stream)
    end
    redis.call('LPOP', ENDED_LOGS)
    oldest = redis.call('LINDEX', ENDED_LOGS, 0)
  end
end

-- Add events to a log. KEYS, from a place on: stream, ended, gone, who wrote how much. ARGV, behind a place: 1 ttl_s while
-- it runs, 2 ttl_s after the end, 3 max_bytes, 4 of all ended logs, 5 least (-1: only if empty), 6 fence (0: whoever),
-- 7 is_final, 8 the writer ('': unnamed), 9 how many events it had written before these, then (type, data) pairs.
-- The last id, or, with nothing written: -1: the stream is shorter than `least`, so it was lost and must be restored;
-- -2: an owner with a higher fence has written; -3: the turn's session is deleted. Ids are 1, 2, 3… without gaps,
-- whoever writes. What comes behind the end does not prolong the log.
local function append(place, behind)
  local stream, ended, gone, wrote = unpack(KEYS, place, place + 3)
  local ttl_s, ended_ttl_s, max_bytes, total, least = unpack(ARGV, behind + 1, behind + 5)
  local first = behind + 10  -- of the pairs
  if redis.call('EXISTS', gone) == 1 then
    return -3
  end
  local last, bytes, fence = 0, 0, tonumber(ARGV[behind + 6])
  local tail = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  if tail[1] then
    last = tonumber(string.match(tail[1][1], '^%d+'))
    bytes = tonumber(tail[1][2][8] or '0')  -- the fields are t, d, f, b
    local highest = tonumber(tail[1][2][6] or '0')
    if fence > 0 and fence < highest then
      return -2
    end
    fence = math.max(fence, highest)
  end
  least = tonumber(least)
  if last < least or (least == -1 and last > 0) then
    return -1
  end
  -- A Redis that stood still answers nobody in time, and then runs what was sent twice: what is there is not added again.
  local writer, before, skipped = ARGV[behind + 8], tonumber(ARGV[behind + 9]), 0
  if writer ~= '' then
    local whose, written = string.match(redis.call('GET', wrote) or '', '^(%w+) (%d+)$')
    written = whose == writer and tonumber(written) or 0
    skipped = math.max(written - before, 0)
    local whole = math.max(before + (#ARGV - first + 1) / 2, written)
    redis.call('SET', wrote, string.format('%s %.0f', writer, whole), 'EX', ttl_s)
  end
  first = first + 2 * skipped
  if first > #ARGV then
    return last
  end
  for i = first, #ARGV, 2 do
    last, bytes = add(stream, last, bytes, ARGV[i], ARGV[i + 1], fence)
  end
  if bytes > tonumber(max_bytes) then  -- of all events so far: mostly fewer, and nothing needs to be read
    trim(stream, last, bytes, tonumber(max_bytes))
  end
  local is_final = ARGV[behind + 7] == '1'
  if is_final then
    redis.call('SET', ended, '', 'EX', ended_ttl_s)
    redis.call('EXPIRE', wrote, ended_ttl_s)
    keep_ended(stream, math.min(bytes, tonumber(max_bytes)), ended_ttl_s, tonumber(total))
  end
  redis.call('EXPIRE', stream, (is_final or redis.call('EXISTS', ended) == 1) and ended_ttl_s or ttl_s)
  tell(stream, last, is_final)
  return last
end

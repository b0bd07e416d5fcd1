-- Each entry has the fields t (type), d (data), f (fence) and b: the bytes of all events so far, so that what a stream
-- holds is the difference of two entries, whoever trimmed it.
local OVERHEAD = 64  -- bytes of an entry beside its type and data, about

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

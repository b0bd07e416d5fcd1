-- Keep a blob's bytes, and let go of those used least lately until all of them are within the bound again.
-- KEYS: the blob, the index (sorted set of "<bytes>:<ref>", scored by use), the total.
-- ARGV: ref, bytes, most bytes of all, life in ms, what stands before a ref in a blob's key.
-- Returns how many it let go of.
local ref, data, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local size = #data

-- Any key may vanish: the total is made anew from the index, and an empty index means that nothing is held.
local total = tonumber(redis.call('GET', KEYS[3]))
if redis.call('EXISTS', KEYS[2]) == 0 then
  total = 0
elseif not total then
  total = 0
  for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    total = total + tonumber(string.match(member, '^(%d+):'))
  end
end

local before = redis.call('STRLEN', KEYS[1])
if redis.call('ZREM', KEYS[2], before .. ':' .. ref) == 1 then
  total = total - before
end
redis.call('DEL', KEYS[1])

local is_kept = size <= most
local evicted = 0
while is_kept and total + size > most do
  local oldest = redis.call('ZPOPMIN', KEYS[2])
  if #oldest == 0 then
    total = 0
    break
  end
  local bytes, gone = string.match(oldest[1], '^(%d+):(.*)$')
  redis.call('UNLINK', ARGV[5] .. gone)
  evicted = evicted + 1
  total = total - tonumber(bytes)
end

if is_kept then
  local latest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
  local use = (tonumber(latest[2]) or 0) + 1
  redis.call('SET', KEYS[1], data, 'PX', ARGV[4])
  redis.call('ZADD', KEYS[2], string.format('%.0f', use), size .. ':' .. ref)
  total = total + size
end
redis.call('SET', KEYS[3], string.format('%.0f', total))
return evicted

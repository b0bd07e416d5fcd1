-- The bytes of a blob, which is now the one used last; false if they are not here.
-- KEYS: the blob, the index. ARGV: ref, life in ms.
local data = redis.call('GET', KEYS[1])
if data then
  local member = #data .. ':' .. ARGV[1]
  if redis.call('ZSCORE', KEYS[2], member) then
    local latest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
    redis.call('ZADD', KEYS[2], string.format('%.0f', tonumber(latest[2]) + 1), member)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return data
  end
  -- The index was lost, and with it the count of these bytes: they come back, counted, from the disk.
  redis.call('UNLINK', KEYS[1])
end
return false

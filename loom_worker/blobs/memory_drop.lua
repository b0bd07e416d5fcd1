-- Forget blobs. KEYS: the index, the total, then the blobs. ARGV: their refs.
for n, ref in ipairs(ARGV) do
  local key = KEYS[n + 2]
  local size = redis.call('STRLEN', key)
  if redis.call('ZREM', KEYS[1], size .. ':' .. ref) == 1 and redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('DECRBY', KEYS[2], size)
  end
  redis.call('UNLINK', key)
end

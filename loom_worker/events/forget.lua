-- KEYS: stream, end, gone, who wrote how much, of each turn. ARGV: 1 ttl_s, then for each turn 1 if it may still have a
-- writer.
-- What nobody wrote to lately leaves nothing behind; a turn that had a log may have a writer that has not heard yet.
for i = 1, #KEYS, 4 do
  local was_there = redis.call('UNLINK', KEYS[i], KEYS[i + 1], KEYS[i + 3])
  if was_there > 0 or ARGV[1 + (i + 3) / 4] == '1' then
    redis.call('SET', KEYS[i + 2], '', 'EX', ARGV[1])
  end
  tell(KEYS[i], 0, true)
end
return 0

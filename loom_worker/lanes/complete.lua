-- ARGV: name, token, seq, kick_ms. -1: lost to another. 0: idle. 1: there is more, ring.
-- Dropping what is done and asking for more is one step, or a turn that arrives in between would be stranded. All up
-- to seq is done: a lower turn still here was finished by a worker that died before it came to say so.
if not is_ours(ARGV[2]) then
  return -1
end
redis.call('ZREMRANGEBYSCORE', LANE, '-inf', ARGV[3])
if is_empty() then
  become_idle()
  return 0
end
become_kicked(tonumber(ARGV[4]), 0)
return 1

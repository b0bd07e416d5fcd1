-- ARGV: 4 token, 5 ms (-1: wake it now). 1: given back, send a wake-up. 0: lost to another, or a free slot has it, or
-- the sweep will wake it after ms.
if not is_ours(OWN, ARGV[4]) then
  return 0
end
if tonumber(ARGV[5]) < 0 then
  return wake(OWN)
end
become_kicked(OWN, tonumber(ARGV[5]), 0)
return 0

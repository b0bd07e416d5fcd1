-- ARGV: 4 token, 5 seq. -1: lost to another; else see complete in common.lua.
if not is_ours(OWN, ARGV[4]) then
  return -1
end
return complete(OWN, ARGV[5])

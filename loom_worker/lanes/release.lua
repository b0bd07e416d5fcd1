-- ARGV: name, token, ms. 1: given back, to be rung; should that ring be lost, the sweep rings after ms. 0: lost.
if not is_ours(ARGV[2]) then
  return 0
end
become_kicked(tonumber(ARGV[3]), 0)
return 1

-- ARGV: 4 token. The lane's highest seq (0 if it has none) and the version of all content: the lease is ours.
-- -1: the lane is running or parked under a live lease.
if not take(OWN, ARGV[4]) then
  return {-1, ''}
end
return {last_seq(OWN), content()}

-- ARGV: 4 token. Leaves the lane without an owner and without a wake-up; its turns stay. 0: lost to another.
if not is_ours(OWN, ARGV[4]) then
  return 0
end
become_idle(OWN)
return 1

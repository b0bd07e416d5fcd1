-- ARGV: name, token. Leaves the lane without an owner and without a doorbell; its turns stay. 0: lost to another.
if not is_ours(ARGV[2]) then
  return 0
end
become_idle()
return 1

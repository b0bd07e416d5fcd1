-- ARGV: 4 slot, 5 wait_ms. The lane that a slot is to run ('': none yet), its highest seq, the version of all content.
local found = next_lane(ARGV[4], tonumber(ARGV[5]))
if found then
  return {found.name, last_seq(found), content()}
end
return {'', 0, ''}

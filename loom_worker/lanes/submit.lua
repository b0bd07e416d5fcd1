-- ARGV: (seq, turn) pairs. See submit in common.lua.
return submit(OWN, 4, #ARGV + 1)

-- KEYS and ARGV: see append in common.lua.
return append(1, 0)

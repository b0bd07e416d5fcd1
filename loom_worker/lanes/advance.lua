-- ARGV: 4 token, 5 seq, 6 slot ('': the thread has no time for another turn), 7 wait_ms. See advance in common.lua.
return advance(OWN, ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]))

-- Scripts run in Redis' Lua 5.1. limits.lua is put in front of the scripts that use it.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson" }
max_line_length = 140
files["lua/limits.lua"] = { ignore = { "241/limits" } }
local rule = { read_globals = { "read", "check", "take", "answer", "write", "MICRO", "TTL_SLOT", "EXACT" } }
files["lua/allow.lua"] = rule
files["lua/ask.lua"] = rule
files["lua/enqueue.lua"] = { read_globals = { "limits" } }

-- Scripts run in Redis' Lua 5.1. limits.lua, flow.lua, group.lua and others are put in front of the scripts that use them.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson" }
max_line_length = 140
files["lua/limits.lua"] = { ignore = { "241/limits" } }
files["lua/dlq.lua"] = { ignore = { "241/dlq" } }
files["lua/dedupe.lua"] = { ignore = { "241/dedupe" } }
files["lua/limit_keys.lua"] = { ignore = { "241/limit_keys" } }
files["lua/away.lua"] = { ignore = { "241/away" } }
files["lua/usual.lua"] = { read_globals = { "dlq", "limits" } }
files["lua/group.lua"] = { read_globals = { "flow" }, ignore = { "241/group" } }
files["lua/idle.lua"] = { read_globals = { "flow", "group" }, ignore = { "241/idle" } }
files["lua/sender.lua"] = { read_globals = { "flow", "quota" }, ignore = { "241/sender" } }
files["lua/pending.lua"] = { read_globals = { "flow" }, ignore = { "241/pending" } }
files["lua/turns.lua"] = { read_globals = { "flow", "group", "quota", "sender" }, ignore = { "241/turns" } }
files["lua/pins.lua"] = { ignore = { "241/pins" } }
files["lua/pool.lua"] = { ignore = { "241/pool" } }
files["lua/share.lua"] = { read_globals = { "pool", "quota", "sender" }, ignore = { "241/share" } }
files["lua/quota.lua"] = { ignore = { "241/quota" } }
files["lua/flow.lua"] = { ignore = { "241/flow" } }
files["lua/places.lua"] = { ignore = { "241/places" }, read_globals = { "flow", "group", "idle" } }
for _, name in ipairs { "claim", "settle", "sweep", "cancel", "redrive", "purge", "inspect_job", "inspect_bucket", "inspect_pool", "control", "reserve", "take_back",
  "flows_of", "control_flow", "trim_dead" } do
  files["lua/" .. name .. ".lua"] = { read_globals = { "away", "dedupe", "dlq", "flow", "group", "idle", "pending", "pins", "pool", "quota", "sender", "share", "turns" } }
end
local rule = { read_globals = { "read", "check", "take", "answer", "write", "limit_keys", "MICRO", "TTL_SLOT", "EXACT" } }
files["lua/allow.lua"] = rule
files["lua/ask.lua"] = rule
files["lua/enqueue.lua"] = { read_globals = { "dlq", "limits", "limit_keys", "flow", "group", "idle", "places" } }

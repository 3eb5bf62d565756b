-- Scripts run in Redis' Lua 5.1. The last lines of read_globals are the pieces of lua/lib that scripts include.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson",
  "allowance", "named_reply", "downstream_signals", "arrivals",
  "batch", "bits", "bucket_pacer", "budget", "bundle",
  "callbacks", "callers", "changes", "charges", "codec", "codes",
  "dedupe", "dlq", "downstream", "drr",
  "encoding", "estimate", "expiries", "expiry",
  "fair_queue", "flow",
  "group",
  "claim_reply",
  "idle", "in_chunks", "in_flight",
  "leftovers", "light_flow", "limit_keys", "limit_state", "limits",
  "flow_owners",
  "next_turns",
  "outbox", "outcomes", "overrides", "own_settings", "owned",
  "pacer", "placement", "plain_turns", "pool", "jobs_ahead",
  "limit_checks", "queue", "quota",
  "rates", "refusal", "reservation", "responses", "results",
  "schedule", "server_time", "sliding_window_counter", "sliding_window_log", "slots", "standby",
  "text", "timetable", "token_bucket", "reserved_flows",
  "use",
  "waiting", "window_tally" }
max_line_length = 140

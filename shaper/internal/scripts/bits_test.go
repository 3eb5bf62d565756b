package scripts_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// narrow makes string.format('%d') what it is on a server that is built for 32 bits.
const narrow = `local string = (function(wide)
  local narrow = {}
  for _, name in ipairs({ 'find', 'gmatch', 'gsub', 'lower', 'match', 'rep', 'sub' }) do narrow[name] = wide[name] end
  function narrow.format(format, ...)
    local values = { ... }
    for i, value in ipairs(values) do
      if type(value) == 'number' and value >= 2 ^ 31 then values[i] = -2 ^ 31 end
    end
    return wide.format(format, unpack(values))
  end
  return narrow
end)(string)
`

// Times are microseconds, which a server of 32 bits would not store. So nothing can be set up there, no limit
// decides, and nothing is written.
func TestServersOf32BitsAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for name, run := range map[string]struct {
			script *lua.Script
			keys   []string
			args   []any
		}{
			"a pool":  {lua.Configure, []string{r.key("settings")}, []any{2, 1, "", "", 1, "test", 0, "rate_count", 5}},
			"a limit": {lua.Allow, []string{r.key("settings"), r.key("state"), r.key("keys"), r.key("shared")}, []any{"", "", "token_bucket", 0, 2000000, 1, "", 1000000, 1, 5000000, 1}},
		} {
			if err := r.c.Eval(r.ctx, run.script.Text(), run.keys, run.args...).Err(); err != nil {
				t.Errorf("%s on a server of 64 bits: %v", name, err)
			}
			r.ok(r.c.Del(r.ctx, run.keys...).Err())
			err := r.c.Eval(r.ctx, narrow+run.script.Text(), run.keys, run.args...).Err()
			if err == nil || !strings.Contains(err.Error(), "this Redis is built for 32 bits") {
				t.Errorf("%s on a server of 32 bits: %v, want it refused", name, err)
			}
			must.Equal(t, r.c.Exists(r.ctx, run.keys...).Val(), 0, "%s left keys on a server of 32 bits", name)
		}
	})
}

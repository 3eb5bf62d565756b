package lua

import (
	"regexp"
	"strings"
)

// AllowBy is the script allow for one rule of limits.lua. Of that it has what is
// before the first rule and the rule itself: making all functions of all rules
// anew for each run took a fifth of it.
func AllowBy(rule string) *Script { return allowBy[rule] }

var allowBy = func() map[string]*Script {
	scripts := map[string]*Script{}
	begins := regexp.MustCompile(`(?m)^--- ([\w ]+)$`).FindAllStringSubmatchIndex(limitsText, -1)
	head := limitsText[:begins[0][0]]
	for i, at := range begins {
		end := len(limitsText)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		section := limitsText[at[0]:end]
		script := newScript("allow", head+section+allowText)
		for _, name := range strings.Fields(limitsText[at[2]:at[3]]) {
			scripts[name] = script
		}
	}
	return scripts
}()

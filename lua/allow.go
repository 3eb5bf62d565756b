package lua

import (
	"math/bits"
	"regexp"
	"strings"
)

// AllowBy is the script allow for one rule of limits.lua; nil for what is no rule.
// Of limits.lua it has that rule and what they share: making all functions of all
// rules anew for each run took a fifth of it.
func AllowBy(rule string) *Script { return byRule[rule].allow }

// AskBy is the script ask for one rule of limits.lua; nil for what is no rule.
func AskBy(rule string) *Script { return byRule[rule].ask }

var byRule = func() map[string]struct{ allow, ask *Script } {
	rules, asks := sections(limitsText), sections(askText)
	scripts := map[string]struct{ allow, ask *Script }{}
	for names, rule := range rules {
		_, block, isRule := strings.Cut(rule, "\nfunction make.")
		if !isRule {
			continue
		}
		// The block that a text is put into has the rule's functions as locals, and
		// no table of them.
		_, block, _ = strings.Cut(block, "()\n")
		block, _, _ = strings.Cut(block, "\n  return {")
		block = rules["shared"] + "do\n" + block + "\n"
		of := struct{ allow, ask *Script }{
			allow: newScript("allow", rules[""]+limitKeysText+block+allowText+"end\n"),
			ask:   newScript("ask", rules[""]+asks[""]+asks[names]+limitKeysText+block+asks["every rule"]+"end\n"),
		}
		for _, name := range strings.Fields(names) {
			scripts[name] = of
		}
	}
	return scripts
}()

// EarlierReset is what the reset of a token_bucket was before the last micro
// micro-tokens were spent of it at that same instant, given the reset and the slack
// that allow answers after that, and the rule's a and b. All are 0 or more, and a
// is 1 or more.
func EarlierReset(reset, slack, micro, a, b int64) int64 {
	high, low := bits.Mul64(uint64(micro), uint64(b))
	low, carry := bits.Add64(low, uint64(slack), 0)
	quotient, _ := bits.Div64(high+carry, low, uint64(a)) // reset at most
	return reset - int64(quotient)
}

// sections are the parts of a text that begin with a line of three dashes and
// their names. The first one has none.
func sections(text string) map[string]string {
	parts, names, from := map[string]string{}, "", 0
	for _, at := range regexp.MustCompile(`(?m)^--- ([\w ]+)$`).FindAllStringSubmatchIndex(text, -1) {
		parts[names] = text[from:at[0]]
		names, from = text[at[2]:at[3]], at[0]
	}
	parts[names] = text[from:]
	return parts
}

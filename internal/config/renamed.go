package config

import (
	"fmt"
	"strings"
)

// renamed maps keys of configurations that were written before 0.1.0, by the end of their path, to their new names. 0.2.0 deletes this file.
var renamed = map[string]string{
	".llm.door": "route",
}

// renamedHint returns `; it is called "X" now` for the path of a key that was renamed, else "".
func renamedHint(path string) string {
	for end, name := range renamed {
		if strings.HasSuffix(path, end) {
			return fmt.Sprintf("; it is called %q now", name)
		}
	}
	return ""
}

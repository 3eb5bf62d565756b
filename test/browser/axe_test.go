package browser

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe-core 4.14.1, as scripts/npm has it, and its SHA-256.
const (
	axeFile   = "../../.tools/npm/node_modules/axe-core/axe.min.js"
	axeSHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// axe is the text of axe-core.
var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile(axeFile)
	if err != nil {
		return "", err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(text)); sum != axeSHA256 {
		return "", fmt.Errorf("%s has the SHA-256 %s, want %s", axeFile, sum, axeSHA256)
	}
	return string(text), nil
})

// checkAccess looks for violations of WCAG 2.2 AA on the page.
func (p *tab) checkAccess(t *testing.T, page string) {
	t.Helper()
	text, err := axe()
	if os.IsNotExist(err) && os.Getenv("CI") == "" {
		t.Log("axe-core is not here: scripts/parsers installs it with npm; pages are looked at without")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	eval[bool](p, text+"; true")
	const run = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']})
		.then((result) => result.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html + ' ' + n.failureSummary)))`
	if violations := eval[[]string](p, run, chromedp.EvalAwaitPromise); len(violations) > 0 {
		t.Errorf("%s: %d violations of WCAG:\n%s", page, len(violations), strings.Join(violations, "\n"))
	}
}

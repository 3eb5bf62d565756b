package signals

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each alert has a severity, a summary and a runbook, and each runbook an alert, three commands and what to change.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	sections := runbooks(t)
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q, want critical, warning or info", a.Alert, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", a.Alert)
		}
		s, ok := sections[a.Alert]
		if !ok {
			t.Errorf("the runbooks have no section %s", a.Alert)
			continue
		}
		if want := runbookURL + s.page + "#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %q, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if s.severity != a.Labels["severity"] {
			t.Errorf("docs/%s: %s has the severity %q, want %q", s.page, a.Alert, s.severity, a.Labels["severity"])
		}
		delete(sections, a.Alert)
		if len(s.commands) != 3 || slices.ContainsFunc(s.commands, func(line string) bool {
			return !strings.HasPrefix(line, "bin/dispatcher ") && !strings.HasPrefix(line, "curl ")
		}) {
			t.Errorf("docs/%s: %s has the commands %q, want three", s.page, a.Alert, s.commands)
		}
		if s.after == "" {
			t.Errorf("docs/%s: %s does not say what to change", s.page, a.Alert)
		}
	}
	for name := range sections {
		t.Errorf("the runbooks have a section %s, and there is no such alert", name)
	}
}

// The index of the runbooks lists each alert once, with its page and its severity.
func TestIndexListsAlerts(t *testing.T) {
	t.Parallel()
	sections := runbooks(t)
	var listed, want []string
	for _, row := range regexp.MustCompile(`(?m)^\| \[(Tundish\w+)\]\((runbooks-\w+\.md#\w+)\) \| (\w+) \|`).FindAllStringSubmatch(read(t, root+"docs/runbooks.md"), -1) {
		listed = append(listed, row[1]+" "+row[2]+" "+row[3])
	}
	for _, a := range alerts(t) {
		want = append(want, a.Alert+" "+sections[a.Alert].page+"#"+strings.ToLower(a.Alert)+" "+a.Labels["severity"])
	}
	if !slices.Equal(listed, want) {
		t.Errorf("docs/runbooks.md lists %q\nwant the alerts of alerts.yaml, in their order: %q", listed, want)
	}
}

// Each alert has a case in which it fires and one in which it does not, beside series that it could fire of.
func TestAlertsHaveCases(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			InputSeries   []struct{ Series string } `yaml:"input_series"`
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	parseYAML(t, prometheus+"alerts_test.yaml", &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.AlertRuleTest {
			if len(c.ExpAlerts) > 0 {
				fires[c.Alertname] = true
			} else if len(test.InputSeries) > 0 {
				quiet[c.Alertname] = true
			}
		}
	}
	want := map[string]bool{}
	for _, a := range alerts(t) {
		want[a.Alert] = true
	}
	if !maps.Equal(fires, want) || !maps.Equal(quiet, want) {
		t.Errorf("alerts_test.yaml has %d alerts that fire and %d that do not, want all %d of alerts.yaml in both: fire %v, do not %v",
			len(fires), len(quiet), len(want), missing(want, fires), missing(want, quiet))
	}
}

func missing(want, have map[string]bool) (names []string) {
	for name := range want {
		if !have[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// promtool of Prometheus accepts the rules, and each case of alerts_test.yaml is as it says.
func TestPromtool(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Fatal("promtool is not here: run `scripts/need promtool prometheus`, or install the package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = prometheus
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

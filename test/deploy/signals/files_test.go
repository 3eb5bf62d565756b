// Package signals checks the alerts, the runbooks and the dashboards that are shipped: that they fit together, and with the build tag ship that
// they tell of programs that run.
package signals

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	root       = "../../../"
	prometheus = root + "deploy/prometheus/"
	runbookURL = "https://github.com/tundish-io/tundish/blob/main/docs/"
)

// alert is a rule of alerts.yaml.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (list []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	parseYAML(t, prometheus+"alerts.yaml", &file)
	for _, group := range file.Groups {
		list = append(list, group.Rules...)
	}
	if len(list) < 20 {
		t.Fatalf("alerts.yaml has %d alerts", len(list))
	}
	return list
}

func parseYAML(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatal(path, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runbookPages are the pages with the runbooks. docs/runbooks.md is their index.
var runbookPages = []string{"runbooks-platform.md", "runbooks-jobs.md", "runbooks-receivers.md"}

// section is one of a page of runbooks.
type section struct {
	page     string
	severity string
	commands []string
	after    string // the text behind the commands: what to change
}

// runbooks are the sections by their headings, which are names of alerts.
func runbooks(t *testing.T) map[string]section {
	t.Helper()
	found := map[string]section{}
	for _, page := range runbookPages {
		for _, text := range strings.Split(read(t, root+"docs/"+page), "\n### ")[1:] {
			name, body, _ := strings.Cut(text, "\n")
			body, _, _ = strings.Cut(body, "\n## ")
			severity, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(body), "**"), ".**")
			_, body, _ = strings.Cut(body, "```sh") // or ```sh live
			_, body, _ = strings.Cut(body, "\n")
			commands, after, _ := strings.Cut(body, "\n```\n")
			if _, twice := found[name]; twice {
				t.Errorf("the runbooks have two sections %s", name)
			}
			found[name] = section{page, strings.ToLower(severity), strings.Split(commands, "\n"), strings.TrimSpace(after)}
		}
	}
	return found
}

// dashboard is what the checks read of a file of deploy/grafana.
type dashboard struct {
	file string

	ID            *int
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Links         []struct{ URL string }
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Datasource *source
		}
	}
}

type source struct{ Type, UID string }

type panel struct {
	ID          int
	Type, Title string
	Datasource  *source
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		RefID, Expr string
		Datasource  *source
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
}

func dashboards(t *testing.T) (list []dashboard) {
	t.Helper()
	paths, err := filepath.Glob(root + "deploy/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		d := dashboard{file: filepath.Base(path)}
		if err := json.Unmarshal([]byte(read(t, path)), &d); err != nil {
			t.Fatal(path, err)
		}
		list = append(list, d)
	}
	if len(list) != 3 {
		t.Fatalf("there are %d dashboards, want overview, bucket and redis", len(list))
	}
	return list
}

var variable = regexp.MustCompile(`\$\{?(\w+)`)

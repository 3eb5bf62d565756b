package helm

import (
	"flag"
	"os"
	"reflect"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	manifests      = root + "/deploy/kubernetes/tundish.yaml"
	manifestValues = root + "/deploy/kubernetes/values.yaml"
	alerts         = root + "/deploy/prometheus/alerts.yaml"
	alertsCopy     = chart + "/files/alerts.yaml"
	beginning      = `# Made by the chart in deploy/helm/tundish with the values in values.yaml beside this file, and not changed by hand:
#   helm template tundish deploy/helm/tundish --namespace tundish --values deploy/kubernetes/values.yaml --skip-tests
# docs/kubernetes.md has the steps.
`
)

var update = flag.Bool("update", false, "write the plain manifests and the chart's copy of the alerts anew")

// The plain manifests are the output of the chart.
func TestManifests(t *testing.T) {
	t.Parallel()
	text, err := template(t.Context(), helm4, "tundish", "--namespace", "tundish", "--values", manifestValues, "--skip-tests")
	if err != nil {
		t.Fatal(err)
	}
	same(t, manifests, beginning+text)
	if hooks := of[*core.Pod](decoded(t, text)); len(hooks) > 0 {
		t.Errorf("%s has %d pods that only `helm test` can start", manifests, len(hooks))
	}
}

// The chart has a copy of the alerts in deploy/prometheus, because Helm reads no file outside of a chart, and its PrometheusRule has all of them.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(alertsCopy)
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &want); err != nil || len(want.Groups) < 2 {
		t.Fatalf("%d groups of alerts: %v", len(want.Groups), err)
	}
	rules := of[*monitoring.PrometheusRule](rendered(t, "queue", "testdata/values/monitoring.yaml"))
	if len(rules) != 1 || !reflect.DeepEqual(rules[0].Spec, want) {
		t.Errorf("the PrometheusRule has other alerts than %s", alertsCopy)
	}
	original, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	same(t, alertsCopy, string(original))
}

// same compares a file with what it should be, or writes it.
func same(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is stale: in test/deploy run go test ./helm -update (%v)", path, err)
	}
}

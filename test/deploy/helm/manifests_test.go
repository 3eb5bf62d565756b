package helm

import (
	"flag"
	"os"
	"testing"

	core "k8s.io/api/core/v1"
)

const (
	manifests      = root + "/deploy/kubernetes/tundish.yaml"
	manifestValues = root + "/deploy/kubernetes/values.yaml"
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

// same compares a file with what it should be, or writes it.
func same(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // all may read it
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is stale: in test/deploy run go test ./helm -update (%v)", path, err)
	}
}

// Package helm holds the chart in deploy/helm/tundish against Kubernetes' own types and policies, and against the programs that its pods run. No test needs a
// cluster: what a cluster does with these objects is not verified here.
package helm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	root       = "../../.."
	chart      = root + "/deploy/helm/tundish"
	helm4      = root + "/.tools/helm-v4.3.1"
	kubernetes = "1.37.0" // a helm that go install has built takes the cluster for an old one
	namespace  = "shop"
)

// helms are the versions of helm that refuse bad values. The build tag ship adds one.
var helms = []string{helm4}

// template is the output of helm with a release's name and more arguments.
func template(ctx context.Context, helm, release string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, helm, append([]string{"template", release, chart, "--kube-version", kubernetes, "--namespace", namespace}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said.String())
	}
	return string(out), nil
}

// rendered are the objects of the chart with the values of a file and more arguments.
func rendered(t *testing.T, release, file string, args ...string) objects {
	t.Helper()
	text, err := template(t.Context(), helm4, release, append([]string{"--values", file}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, text)
}

// valueFiles are the values with which the chart is tried, also those of the manifests.
func valueFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{"manifests": manifestValues}
	paths, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d files of values: %v", len(paths), err)
	}
	for _, path := range paths {
		files[filepath.Base(path)] = path
	}
	return files
}

// objects are what the chart makes.
type objects []meta.Object

// of are the objects of a type.
func of[T meta.Object](all objects) (some []T) {
	for _, object := range all {
		if o, ok := object.(T); ok {
			some = append(some, o)
		}
	}
	return some
}

var documents = regexp.MustCompile(`(?m)^---$`)

// decoded reads objects as the API server does: a field that a type does not have, or has twice, is an error.
func decoded(t *testing.T, text string) (all objects) {
	t.Helper()
	for _, document := range documents.Split(text, -1) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if kind.Kind == "" { // comments alone
			continue
		}
		object, known := map[string]meta.Object{
			"v1/ConfigMap":                            &core.ConfigMap{},
			"v1/Service":                              &core.Service{},
			"v1/ServiceAccount":                       &core.ServiceAccount{},
			"v1/Pod":                                  &core.Pod{},
			"apps/v1/Deployment":                      &apps.Deployment{},
			"policy/v1/PodDisruptionBudget":           &policy.PodDisruptionBudget{},
			"networking.k8s.io/v1/NetworkPolicy":      &networking.NetworkPolicy{},
			"autoscaling/v2/HorizontalPodAutoscaler":  &autoscaling.HorizontalPodAutoscaler{},
			"monitoring.coreos.com/v1/ServiceMonitor": &monitoring.ServiceMonitor{},
			"monitoring.coreos.com/v1/PrometheusRule": &monitoring.PrometheusRule{},
		}[kind.APIVersion+"/"+kind.Kind]
		if !known {
			t.Fatalf("no type for %s %s", kind.APIVersion, kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatalf("%s: %v in\n%s", kind.Kind, err, document)
		}
		all = append(all, object)
	}
	return all
}

// programs is the folder with the built programs.
var programs string

func build(program string) error {
	cmd := exec.Command("go", "build", "-o", programs, "./cmd/"+program)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return cmd.Run()
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "tundish-helm-")
		if err == nil {
			defer os.RemoveAll(dir)
			programs = dir
			err = build("dispatcher")
		}
		if err == nil {
			_, err = os.Stat(helm4)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "helm:", err, "(make ship-test builds helm)")
			return 1
		}
		return m.Run()
	}())
}

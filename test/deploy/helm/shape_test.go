package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	security "k8s.io/pod-security-admission/api"
	admission "k8s.io/pod-security-admission/policy"
)

// Objects have names that Kubernetes takes, and select the pods that they are for and no others; pods keep the restricted standard.
func TestShape(t *testing.T) {
	t.Parallel()
	for name, file := range valueFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := rendered(t, "queue", file)
			named(t, all)
			selecting(t, all)
			for spec, labels := range pods(all) {
				restricted(t, spec, labels)
				mounted(t, spec)
				asUser(t, spec, name == "openshift.yaml")
			}
		})
	}
}

// named wants names of at most 63 letters, each once for a kind.
func named(t *testing.T, all objects) {
	t.Helper()
	seen := map[string]bool{}
	for _, object := range all {
		id := fmt.Sprintf("%T %s", object, object.GetName())
		if faults := validation.IsDNS1035Label(object.GetName()); len(faults) > 0 || seen[id] || object.GetNamespace() != namespace {
			t.Errorf("%s in %s, there already: %v; %v", id, object.GetNamespace(), seen[id], faults)
		}
		seen[id] = true
		for key, value := range object.GetLabels() {
			if faults := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(faults) > 0 {
				t.Errorf("%s: label %s=%s: %v", id, key, value, faults)
			}
		}
	}
}

// Names of all lengths leave room for the ends that objects have.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, letters := range []int{1, 51, 52, 53, 54, 62, 63} {
		named(t, rendered(t, "queue", manifestValues, "--set", "fullnameOverride="+strings.Repeat("a", letters)))
	}
	named(t, rendered(t, strings.Repeat("a", 53), manifestValues)) // Helm allows no longer name of a release
}

// pods are the specs of all pods, with their labels.
func pods(all objects) map[*core.PodSpec]map[string]string {
	specs := map[*core.PodSpec]map[string]string{}
	for _, d := range of[*apps.Deployment](all) {
		specs[&d.Spec.Template.Spec] = d.Spec.Template.Labels
	}
	for _, pod := range of[*core.Pod](all) {
		specs[&pod.Spec] = pod.Labels
	}
	return specs
}

// selecting wants each selector to select the pods of one program, and one with the name of its object.
func selecting(t *testing.T, all objects) {
	t.Helper()
	selectors := map[string]map[string]string{}
	add := func(object meta.Object, selector map[string]string) {
		selectors[fmt.Sprintf("%T %s", object, object.GetName())] = selector
	}
	for _, o := range of[*apps.Deployment](all) {
		add(o, o.Spec.Selector.MatchLabels)
		if len(o.Spec.Template.Spec.TopologySpreadConstraints) != 2 {
			t.Errorf("%s has %d constraints of its spread", o.Name, len(o.Spec.Template.Spec.TopologySpreadConstraints))
		}
		for _, spread := range o.Spec.Template.Spec.TopologySpreadConstraints {
			selectors["spread "+spread.TopologyKey+" "+o.Name] = spread.LabelSelector.MatchLabels
		}
	}
	for _, o := range of[*core.Service](all) {
		add(o, o.Spec.Selector)
	}
	for _, o := range of[*policy.PodDisruptionBudget](all) {
		add(o, o.Spec.Selector.MatchLabels)
	}
	for _, o := range of[*networking.NetworkPolicy](all) {
		add(o, o.Spec.PodSelector.MatchLabels)
	}
	if len(selectors) < 10 {
		t.Errorf("%d selectors", len(selectors))
	}
	for id, selector := range selectors {
		selected := 0
		for spec, set := range pods(all) {
			if labels.SelectorFromSet(selector).Matches(labels.Set(set)) {
				selected++
				if container := spec.Containers[0].Name; !strings.HasSuffix(id, "-"+container) {
					t.Errorf("%s selects pods of %s", id, container)
				}
			}
		}
		if selected != 1 {
			t.Errorf("%s selects %d kinds of pods: %v", id, selected, selector)
		}
	}
	for _, scaler := range of[*autoscaling.HorizontalPodAutoscaler](all) {
		for _, d := range of[*apps.Deployment](all) {
			if d.Name == scaler.Spec.ScaleTargetRef.Name != (d.Spec.Replicas == nil) {
				t.Errorf("%s scales %s, and %s has %v replicas", scaler.Name, scaler.Spec.ScaleTargetRef.Name, d.Name, d.Spec.Replicas)
			}
		}
	}
	for _, monitor := range of[*monitoring.ServiceMonitor](all) {
		for _, service := range of[*core.Service](all) {
			if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) || monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
				t.Errorf("%s does not scrape %s", monitor.Name, service.Name)
			}
			if job := service.Labels[monitor.Spec.JobLabel]; job != "tundish" {
				t.Errorf("the job of %s is %q, and alerts look for tundish", service.Name, job)
			}
		}
	}
}

// restricted wants what the restricted standard of Kubernetes wants, and a root folder that nobody writes.
func restricted(t *testing.T, spec *core.PodSpec, labels map[string]string) {
	t.Helper()
	judge, err := admission.NewEvaluator(admission.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := security.LevelVersion{Level: security.LevelRestricted, Version: security.LatestVersion()}
	for _, result := range judge.EvaluatePod(level, &meta.ObjectMeta{Labels: labels}, spec) {
		if !result.Allowed {
			t.Errorf("%s: %s: %s", spec.Containers[0].Name, result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
	if *spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem != true || *spec.AutomountServiceAccountToken {
		t.Errorf("%s: may write, or has a token", spec.Containers[0].Name)
	}
}

// asUser wants the user of the image, or none where the cluster chooses one: OpenShift refuses pods that name a user of their own.
func asUser(t *testing.T, spec *core.PodSpec, clusterChooses bool) {
	t.Helper()
	c := spec.SecurityContext
	for name, id := range map[string]*int64{"runAsUser": c.RunAsUser, "runAsGroup": c.RunAsGroup, "fsGroup": c.FSGroup} {
		want, got := "65532", "left out"
		if clusterChooses {
			want = got
		}
		if id != nil {
			got = fmt.Sprint(*id)
		}
		if got != want {
			t.Errorf("%s: %s is %s, want %s", spec.Containers[0].Name, name, got, want)
		}
	}
}

// mounted wants a volume for each mount, and the folder of the configuration as a whole: a file with a subPath never changes in a running pod.
func mounted(t *testing.T, spec *core.PodSpec) {
	t.Helper()
	for _, mount := range spec.Containers[0].VolumeMounts {
		if mount.SubPath != "" || mount.SubPathExpr != "" || !slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == mount.Name }) {
			t.Errorf("%s mounts %+v of %+v", spec.Containers[0].Name, mount, spec.Volumes)
		}
	}
}

// Where an autoscaler of the user's sets the number of dispatchers, the chart has none.
func TestNoReplicas(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{"dispatcher.replicas=null": false, "dispatcher.replicas=0": true} {
		for _, d := range of[*apps.Deployment](rendered(t, "queue", manifestValues, "--set", args)) {
			if has := d.Spec.Replicas != nil; has != want && strings.HasSuffix(d.Name, "-dispatcher") {
				t.Errorf("%s: %s has replicas: %v", args, d.Name, has)
			}
		}
	}
}

// Releases beside each other in a namespace share no object and no pod, also where their names are long and begin alike.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 52)
	for _, pair := range [][2]string{{"one", "two"}, {"tundish", "tundish-2"}, {long + "b", long + "c"}, {"tundish", "tundish-dispatcher"}} {
		first, second := rendered(t, pair[0], manifestValues), rendered(t, pair[1], manifestValues)
		both := map[string]bool{}
		for _, object := range slices.Concat(first, second) {
			id := fmt.Sprintf("%T %s", object, object.GetName())
			if both[id] {
				t.Errorf("%q: both releases have %s", pair, id)
			}
			both[id] = true
		}
		for _, service := range of[*core.Service](first) {
			for _, set := range pods(second) {
				if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(set)) {
					t.Errorf("%q: %s sends to pods of the other release", pair, service.Name)
				}
			}
		}
	}
}

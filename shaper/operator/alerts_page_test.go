package operator_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/operator"
)

// names is a prometheus.Registerer that only notes the names of metrics.
type names map[string]bool

var nameOf = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		n[nameOf.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

func (n names) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = n.Register(c)
	}
}

func (names) Unregister(prometheus.Collector) bool { return false }

// TestAlertsPage holds docs/operating.md to the metrics that there are. A series that does not exist raises no alert, and says so nowhere.
func TestAlertsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	known := names{}
	if _, err := metrics.New(known); err != nil {
		t.Fatal(err)
	}
	known.MustRegister(&operator.Collector{})
	found := regexp.MustCompile(`tundish_[a-z_]+`).FindAllString(page, -1)
	if len(found) < 20 {
		t.Fatalf("the page names only %q", found)
	}
	for _, name := range found {
		if base := strings.TrimSuffix(name, "_bucket"); !known[name] && !known[base] {
			t.Errorf("docs/operating.md names %s, and there is no such metric", name)
		}
	}
}

// Jobs that were not sent are no failed attempts, and hand-overs end elsewhere. Any other outcome counts, one that is new too.
func TestAlertsPageCountsAllOutcomes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alert, ok := strings.Cut(string(text), "| many attempts fail |")
	alert, _, ends := strings.Cut(alert, "\n")
	lists := regexp.MustCompile(`outcome=~"([^"]+)"`).FindAllStringSubmatch(alert, -1)
	if !ok || !ends || len(lists) != 2 {
		t.Fatalf("docs/operating.md has no share of failed attempts: %q", alert)
	}
	outcomes := func(i int) []string { return slices.Sorted(slices.Values(strings.Split(lists[i][1], `\|`))) }
	var sent []string
	for _, result := range shaper.Results() {
		if result != shaper.ResultReturned && result != shaper.ResultHandedOver {
			sent = append(sent, result.String())
		}
	}
	slices.Sort(sent)
	if got := outcomes(1); !slices.Equal(got, sent) {
		t.Errorf("all attempts are %q, want %q", got, sent)
	}
	failed := slices.DeleteFunc(sent, func(word string) bool {
		return word == shaper.ResultDone.String() || word == shaper.ResultDropped.String()
	})
	if got := outcomes(0); !slices.Equal(got, failed) {
		t.Errorf("failed attempts are %q, want %q", got, failed)
	}
}

package operator

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// Each number that a struct reads is told by its script, under that name.
func TestScriptsTellTheNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script, prefix string
		of             reflect.Type
	}{
		{"inspect_bucket.lua", "", reflect.TypeFor[BucketInfo]()},
		{"inspect_bucket.lua", "pool_", reflect.TypeFor[PoolInfo]()},
		{"inspect_pool.lua", "", reflect.TypeFor[PoolDetails]()},
		{"inspect_job.lua", "", reflect.TypeFor[shaper.JobInfo]()},
		{"inspect_job.lua", "flow_", reflect.TypeFor[shaper.JobFlow]()},
		{"inspect_job.lua", "pool_", reflect.TypeFor[shaper.JobPool]()},
	} {
		source := must.Get(os.ReadFile("../../lua/" + c.script))(t)
		told := map[string]bool{} // what operators may change is told under the names of its fields
		for _, field := range overridable {
			told[field.(string)] = true
		}
		tags := 0
		for _, field := range reflect.VisibleFields(c.of) {
			name, ok := field.Tag.Lookup("lua")
			if !ok {
				continue
			}
			tags++
			if field.Type == reflect.TypeFor[admission.Rate]() {
				name += "_count"
			}
			if !told[name] && !regexp.MustCompile(`'`+name+`'|\b`+name+` = `).Match(source) {
				t.Errorf("%s does not tell %s%s", c.script, c.prefix, name)
			}
		}
		if tags < 4 {
			t.Errorf("%s has %d tags: what is compared?", c.of, tags)
		}
	}
}

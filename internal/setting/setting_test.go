package setting_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/setting"
)

type inner struct {
	Wait int64 `setting:"wait,redis=inner_wait,change" help:"'number' of seconds"`
	Note string
}

type line struct {
	Day string `setting:"day"`
}

type common struct {
	Max int64 `setting:"max,bytes"`
}

type outer struct {
	Table   inner            `setting:"table"`
	Absent  *inner           `setting:"absent"`
	Choice  inner            `setting:"choice,optional"`
	Lines   []line           `setting:"lines"`
	Tiers   map[string]int64 `setting:"tiers"`
	Common  common           `setting:",squash"`
	Floor   int              `setting:"floor,percent"`
	Extra   string           `setting:"table.extra"`
	Skipped int64            `setting:"-"`
}

func paths(keys []*setting.Key) (list []string) {
	for _, k := range keys {
		list = append(list, k.Path)
	}
	return list
}

func find(t *testing.T, path string) *setting.Key {
	t.Helper()
	for _, k := range setting.Values(reflect.TypeFor[outer]()) {
		if k.Path == path {
			return k
		}
	}
	t.Fatalf("no value at %s", path)
	return nil
}

// Values come before tables, as TOML wants it; keys of squashed structs and keys with a dot stand where they belong.
func TestKeys(t *testing.T) {
	t.Parallel()
	keys := setting.Keys(reflect.TypeFor[outer]())
	if got, want := paths(keys), []string{"max", "floor", "table", "absent", "choice", "lines", "tiers"}; !slices.Equal(got, want) {
		t.Errorf("keys are %v, want %v", got, want)
	}
	kinds := map[string]setting.Kind{"max": setting.Value, "table": setting.Table, "absent": setting.Table, "lines": setting.Tables, "tiers": setting.Names}
	for _, k := range keys {
		if want, ok := kinds[k.Path]; ok && k.Kind != want {
			t.Errorf("%s is of kind %d, want %d", k.Path, k.Kind, want)
		}
		if want := k.Path == "absent" || k.Path == "choice"; k.Optional != want {
			t.Errorf("%s: optional is %t", k.Path, k.Optional)
		}
	}
	if got, want := paths(keys[2].Keys), []string{"table.wait", "table.extra"}; !slices.Equal(got, want) {
		t.Errorf("the table has %v, want %v", got, want)
	}
	if got, want := paths(setting.Values(reflect.TypeFor[outer]())), []string{"max", "floor", "table.wait", "table.extra", "absent.wait", "choice.wait"}; !slices.Equal(got, want) {
		t.Errorf("values are %v, want %v", got, want)
	}
	wait := find(t, "table.wait")
	if wait.Redis != "inner_wait" || !wait.Change || wait.Help != "'number' of seconds" || find(t, "max").Unit != setting.Bytes || find(t, "floor").Unit != setting.Percent {
		t.Errorf("options are not read: %+v", wait)
	}
	if got := setting.Changeable[string](reflect.TypeFor[inner]()); !slices.Equal(got, []string{"wait"}) {
		t.Errorf("changeable are %v", got)
	}
}

// A table that is not there has no values, until one is made.
func TestValues(t *testing.T) {
	t.Parallel()
	o := outer{Table: inner{Wait: 3}, Common: common{Max: 7}, Extra: "x"}
	root := reflect.ValueOf(&o).Elem()
	for path, want := range map[string]string{"table.wait": "3", "max": "7", "table.extra": "x", "absent.wait": "", "nothing": ""} {
		must.Equal(t, setting.Text(&o, path), want, "%s is", path)
	}
	absent := find(t, "absent.wait")
	if _, ok := absent.In(root); ok {
		t.Error("a table that is not there has a value")
	}
	absent.Make(root).SetInt(9)
	if o.Absent == nil || o.Absent.Wait != 9 {
		t.Errorf("made %+v", o.Absent)
	}
}

// Tags that mean nothing are faults of the program.
func TestWrongTags(t *testing.T) {
	t.Parallel()
	for name, typ := range map[string]reflect.Type{
		"an unknown option": reflect.TypeFor[struct {
			A int `setting:"a,octets"`
		}](),
		"an unknown table": reflect.TypeFor[struct {
			A int `setting:"b.a"`
		}](),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", name)
				}
			}()
			setting.Keys(typ)
		}()
	}
}

// own has what an operator may change: as one value each, also a map. Numbers may be missing.
type own struct {
	Count  *int64            `setting:"count,change"`
	Labels map[string]string `setting:"labels,change"`
	Wait   time.Duration     `setting:"wait"`
	Total  int64             `setting:"total,change"`
}

func TestChanges(t *testing.T) {
	t.Parallel()
	if got := paths(setting.Changes(reflect.TypeFor[own]())); !slices.Equal(got, []string{"count", "labels", "total"}) {
		t.Errorf("an operator may change %v", got)
	}
	var numbers []string
	for _, k := range setting.Values(reflect.TypeFor[own]()) {
		if k.IsNumber() {
			numbers = append(numbers, k.Path)
		}
	}
	if !slices.Equal(numbers, []string{"count", "total"}) {
		t.Errorf("numbers are %v", numbers)
	}
}

// What is zero is not given; a number of 0 that is there, or an empty map, is.
func TestGiven(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	if got := setting.Given(&own{}); got != nil {
		t.Errorf("nothing is %v", got)
	}
	must.Equal(t, fmt.Sprint(setting.Given(&own{Count: &zero, Labels: map[string]string{}, Wait: time.Second})), "[[count 0] [labels map[]] [wait 1s]]", "given are")
}

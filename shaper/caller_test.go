package shaper_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

func TestOwner(t *testing.T) {
	t.Parallel()
	mark := shaper.CallerMark("anna")
	for _, test := range []struct {
		owner  shaper.Owner
		caller string
		want   bool
	}{
		{shaper.Owner{Mark: mark}, "anna", true},
		{shaper.Owner{Mark: mark}, "bert", false},
		{shaper.Owner{Mark: mark}, "", false},
		{shaper.Owner{}, "anna", false},
		{shaper.Owner{}, "", false},
		{shaper.Owner{Mark: "000000"}, "anna", false},
		{shaper.Owner{Mark: "000000"}, "", false},
	} {
		if got := test.owner.Is(test.caller); got != test.want {
			t.Errorf("%+v of %q: %t", test.owner, test.caller, got)
		}
	}
	if len(mark) != 7 || strings.Trim(mark, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || shaper.CallerMark("") != "" {
		t.Errorf("the mark %q", mark)
	}
}

// An Idempotency-Key gives each caller, and each bucket, an id of its own, which no caller may choose.
func TestKeyedID(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, of := range [][3]string{{"b", "anna", "k"}, {"b", "bert", "k"}, {"c", "anna", "k"}, {"b", "anna", "l"}} {
		id := shaper.KeyedID(of[0], of[1], of[2])
		if ids[id] || !shaper.ValidID(id) || !strings.HasPrefix(id, shaper.KeyID) || id != shaper.KeyedID(of[0], of[1], of[2]) {
			t.Errorf("%q of %v", id, of)
		}
		ids[id] = true
	}
}

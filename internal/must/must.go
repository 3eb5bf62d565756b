// Package must has the checks that tests repeat.
package must

import (
	"fmt"
	"strings"
)

// T is what a check needs of a test; *testing.T, *testing.B and *rapid.T have it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// OK ends the test if there is an error.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get is the value of a call that must not fail: must.Get(f())(t). The test ends if it did.
func Get[V any](v V, err error) func(t T) V {
	return func(t T) V {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Equal fails the test, which goes on, unless got is want; format and args say of what.
func Equal[V comparable](t T, got, want V, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s", differs(got, want, format, args))
	}
}

// Be is Equal that ends the test.
func Be[V comparable](t T, got, want V, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Fatal(differs(got, want, format, args))
	}
}

func differs[V comparable](got, want V, format string, args []any) string {
	verb := "%v"
	if text, isText := any(got).(string); isText && !strings.Contains(text, "\n") {
		verb = "%q"
	}
	return fmt.Sprintf("%s: "+verb+", want "+verb, fmt.Sprintf(format, args...), got, want)
}

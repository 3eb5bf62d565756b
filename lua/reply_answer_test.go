package lua_test

import (
	"testing"

	"github.com/tundish-io/tundish/lua"
)

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	a, err := lua.ReadAnswer([]any{"n", int64(7), "text", "x", "list", []any{"a", int64(1)}})
	if err != nil || a.Int("n") != 7 || a.Text("text") != "x" || a.Text("none") != "" || a.Err() != nil {
		t.Errorf("%v, %v", a, err)
	}
	if list := a.List("list"); list.Text() != "a" || list.Int() != 1 || list.Left() != 0 || list.Err() != nil {
		t.Errorf("the list: %v", list.Err())
	}
	if none := a.List("none"); none.Left() != 0 || none.Err() != nil {
		t.Errorf("no list: %v", none.Err())
	}
	if a.Int("text") != 0 || a.Err() == nil {
		t.Errorf("a text is read as a number: %v", a.Err())
	}
	for _, bad := range []any{nil, "x", int64(1), []any{"n"}, []any{int64(1), "n"}} {
		if _, err := lua.ReadAnswer(bad); err == nil {
			t.Errorf("%v is read", bad)
		}
	}
}

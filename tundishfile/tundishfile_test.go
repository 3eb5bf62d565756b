package tundishfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/tundishfile"
	"github.com/tundish-io/tundish/tundishtest"
)

// written is a file with these buckets and limits, on a store of its own.
func written(redisURL string) (path string, remove func()) {
	dir, err := os.MkdirTemp("", "tundishfile")
	if err != nil {
		panic(err)
	}
	path = filepath.Join(dir, "config.toml")
	text := `
redis.url = "` + redisURL + `"
redis.timeout = "10s" # the machine may be busy, and the race detector is slow
[[buckets]]
name = "letters"
rate = "20/s"
worker = "program"
[[buckets]]
name = "hooks"
rate = "5/s"
webhook.url = "https://example.org"
[[limits]]
name = "vendor-api"
limit = "2/h"
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path, func() { _ = os.RemoveAll(dir) }
}

type Letter struct{ To string }

// The file says where Redis is, what a bucket's rate is, and what a limit allows.
func ExampleLoad() {
	store, err := tundishtest.StartStore()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	path, remove := written(store.URL()) // yours is config.toml
	defer remove()

	file, err := tundishfile.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := file.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	letters := tundish.Define[Letter]("letters")
	settings, err := file.Settings("letters")
	if err != nil {
		fmt.Println(err)
		return
	}
	t.Handle(letters.Work(settings, func(_ context.Context, l Letter) error {
		fmt.Println("dear", l.To)
		stop()
		return nil
	}))
	_, err = letters.Enqueue(ctx, t, Letter{To: "ada"})
	fmt.Println(err, t.Run(ctx))

	// Output:
	// dear ada
	// <nil> <nil>
}

func TestSettingsOfTheFile(t *testing.T) {
	t.Parallel()
	store, err := tundishtest.StartStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	path, remove := written(store.URL())
	t.Cleanup(remove)
	file, err := tundishfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for bucket, want := range map[string]string{"hooks": `worker = "program"`, "parcels": `no bucket "parcels"`} {
		if _, err := file.Settings(bucket); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("bucket %q: %v", bucket, err)
		}
	}
	if all := file.Buckets(); len(all) != 2 || all[1].Rate.String() != "5/s" {
		t.Errorf("buckets: %+v", all)
	}
	c, err := file.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	api, err := c.Limit("vendor-api", "")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		d, err := api.Allow(t.Context(), "a")
		if err != nil || d.Allowed != (n < 2) {
			t.Errorf("question %d of a limit of two an hour: %+v %v", n, d, err)
		}
	}
	if _, err := c.Limit("other", ""); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a limit that the file does not have: %v", err)
	}
	receipt, err := tundish.Define[Letter]("hooks").Enqueue(t.Context(), c, Letter{To: "ada"})
	if err != nil {
		t.Errorf("a bucket of the file that no dispatcher has seen: %+v %v", receipt, err)
	}
	if _, err := tundishfile.Load(filepath.Join(t.TempDir(), "none.toml")); err == nil {
		t.Error("a file that is not there")
	}
}

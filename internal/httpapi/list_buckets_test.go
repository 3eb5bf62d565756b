package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Buckets are listed by part of their names, in an order, and page by page, with sums of all.
func TestPagesOfBuckets(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	var all []shaper.Bucket
	for _, name := range []string{"c-mail", "a-mail", "b-mail", "other"} {
		b := buckets(t)[0]
		b.Name, b.Limits = name, nil
		all = append(all, b)
	}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all}))(t)
	t.Cleanup(client.Close)
	for name, n := range map[string]int{"a-mail": 1, "b-mail": 3, "other": 2} {
		for range n {
			if receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: name, Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
				t.Fatal(receipts, err)
			}
		}
	}
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output())}))
	for query, want := range map[string]string{
		"":                                 "c-mail a-mail b-mail other  <nil>",
		"?q=mail":                          "c-mail a-mail b-mail  <nil>",
		"?sort=name":                       "a-mail b-mail c-mail other  <nil>",
		"?sort=waiting":                    "b-mail other a-mail c-mail  <nil>",
		"?sort=waiting&limit=2":            "b-mail other 2 map[buckets:4 dead:0 in_flight:0 unfinished:6]",
		"?sort=waiting&limit=2&cursor=2":   "a-mail c-mail  map[buckets:4 dead:0 in_flight:0 unfinished:6]",
		"?q=mail&limit=1&cursor=1":         "a-mail 2 map[buckets:3 dead:0 in_flight:0 unfinished:4]",
		"?q=nothing&limit=1":               " map[buckets:0 dead:0 in_flight:0 unfinished:0]",
		"?limit=2&cursor=9":                " map[buckets:4 dead:0 in_flight:0 unfinished:6]",
		"?sort=dead&cursor=3":              "other  <nil>",
		"?sort=oldest&limit=1000&cursor=0": "",
	} {
		a := api.do("GET", "/v1/buckets"+query, "").want(200, "")
		got := ""
		for _, b := range a.json["buckets"].([]any) {
			got += b.(map[string]any)["name"].(string) + " "
		}
		next, _ := a.json["next"].(string)
		if totals, ok := a.json["totals"].(map[string]any); ok {
			delete(totals, "noted") // nobody has written the settings yet, which is a note
		}
		if got += fmt.Sprint(next, " ", a.json["totals"]); want != "" && got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?sort=size", "?limit=0", "?limit=1001", "?limit=x", "?cursor=x", "?cursor=-1"} {
		api.do("GET", "/v1/buckets"+query, "").want(400, "invalid")
	}
}

package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	big := strings.Repeat("x", 1001)
	for name, test := range map[string]struct {
		path, body string
		status     int
		code       string
		field      string // of the first fault
		headers    []string
	}{
		"unknown bucket":        {path: "/v1/buckets/nobody/jobs", body: job(""), status: 404, code: "unknown-bucket"},
		"odd bucket":            {path: "/v1/buckets/%2e%2e%2f/jobs", body: job(""), status: 404, code: "unknown-bucket"},
		"nothing":               {body: " ", status: 400, code: "invalid", field: "body"},
		"no JSON":               {body: `{"payload":`, status: 400, code: "invalid", field: "body"},
		"trailing garbage":      {body: job("") + "x", status: 400, code: "invalid", field: "body"},
		"two values":            {body: job("") + job(""), status: 400, code: "invalid", field: "body"},
		"no UTF-8":              {body: job("\"flow\":\"\xff\""), status: 400, code: "invalid", field: "body"},
		"an array":              {body: "[" + job("") + "]", status: 400, code: "invalid", field: "body"},
		"null":                  {body: "null", status: 400, code: "invalid", field: "body"},
		"too deep":              {body: `{"payload":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, status: 400, code: "invalid", field: "body"},
		"unknown field":         {body: job(`"colour":1`), status: 400, code: "invalid", field: "colour"},
		"other case":            {body: job(`"Flow":"a"`), status: 400, code: "invalid", field: "Flow"},
		"twice":                 {body: job(`"payload":2`), status: 400, code: "invalid", field: "payload"},
		"twice, spelled apart":  {body: job(`"\u0070ayload":2`), status: 400, code: "invalid", field: "payload"},
		"odd priority":          {body: job(`"priority":"urgent"`), status: 400, code: "invalid", field: "priority"},
		"empty priority":        {body: job(`"priority":""`), status: 400, code: "invalid", field: "priority"},
		"priority of a number":  {body: job(`"priority":1`), status: 400, code: "invalid", field: "priority"},
		"an expiry of nothing":  {body: job(`"expires_in":"0s"`), status: 400, code: "invalid", field: "expires_in"},
		"an expiry before now":  {body: job(`"expires_in":"-1s"`), status: 400, code: "invalid", field: "expires_in"},
		"an odd expiry":         {body: job(`"expires_in":"soon"`), status: 400, code: "invalid", field: "expires_in"},
		"an expiry of a number": {body: job(`"expires_in":60`), status: 400, code: "invalid", field: "expires_in"},
		"an expiry too exact":   {body: job(`"expires_in":"1ns"`), status: 400, code: "invalid", field: "expires_in"},
		"a wait of nothing":     {body: job(`"max_wait":"0s"`), status: 400, code: "invalid", field: "max_wait"},
		"a wait before now":     {body: job(`"max_wait":"-1s"`), status: 400, code: "invalid", field: "max_wait"},
		"an odd wait":           {body: job(`"max_wait":"soon"`), status: 400, code: "invalid", field: "max_wait"},
		"a wait too long":       {body: job(`"max_wait":"9000h"`), status: 400, code: "invalid", field: "max_wait"},
		"cost in requests":      {body: job(`"cost":{"requests":1}`), status: 400, code: "invalid", field: "cost"},
		"cost in no unit":       {body: job(`"cost":{"To kens":1}`), status: 400, code: "invalid", field: "cost"},
		"cost below nothing":    {body: job(`"cost":{"tokens":-1}`), status: 400, code: "invalid", field: "cost.tokens"},
		"cost in parts":         {body: job(`"cost":{"tokens":1.5}`), status: 400, code: "invalid", field: "cost.tokens"},
		"cost twice":            {body: job(`"cost":{"tokens":1,"tokens":1}`), status: 400, code: "invalid", field: "cost.tokens"},
		"cost beyond numbers":   {body: job(`"cost":{"tokens":9999999999}`), status: 400, code: "invalid", field: "cost"},
		"cost of many units":    {body: job(`"cost":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`), status: 400, code: "invalid", field: "cost"},
		"no payload":            {body: `{"url":"https://example.com/"}`, status: 400, code: "invalid", field: "payload"},
		"null payload":          {body: `{"url":"https://example.com/","payload":null}`, status: 400, code: "invalid", field: "payload"},
		"oversized payload":     {body: `{"url":"https://example.com/","payload":"` + big + `"}`, status: 413, code: "too-large"},
		"oversized body":        {body: job(`"flow":"` + strings.Repeat("x", 70_000) + `"`), status: 413, code: "too-large"},
		"no URL":                {body: `{"payload":1}`, status: 400, code: "invalid", field: "url"},
		"bad URL":               {body: `{"payload":1,"url":"ftp://example.com/"}`, status: 400, code: "invalid", field: "url"},
		"URL of another type":   {body: `{"payload":1,"url":7}`, status: 400, code: "invalid", field: "url"},
		"URL not allowed":       {path: "/v1/buckets/fixed/jobs", body: job(""), status: 422, code: "url-not-allowed"},
		"bad method":            {body: job(`"method":"get"`), status: 400, code: "invalid", field: "method"},
		"bad header":            {body: job(`"headers":{"Host":"x"}`), status: 400, code: "invalid", field: "headers.Host"},
		"header of a number":    {body: job(`"headers":{"X-A":1}`), status: 400, code: "invalid", field: "headers.X-A"},
		"header twice":          {body: job(`"headers":{"X-A":"1","X-A":"2"}`), status: 400, code: "invalid", field: "headers.X-A"},
		"headers as a list":     {body: job(`"headers":["X-A"]`), status: 400, code: "invalid", field: "headers"},
		"odd id":                {body: job(`"id":"a b"`), status: 400, code: "invalid", field: "id"},
		"empty id":              {body: job(`"id":""`), status: 400, code: "invalid", field: "id"},
		"long id":               {body: job(`"id":"` + strings.Repeat("a", 256) + `"`), status: 400, code: "invalid", field: "id"},
		"long flow":             {body: job(`"flow":"` + strings.Repeat("a", 257) + `"`), status: 400, code: "invalid", field: "flow"},
		"bad duration":          {body: job(`"delay":"soon"`), status: 400, code: "invalid", field: "delay"},
		"duration of no unit":   {body: job(`"delay":10`), status: 400, code: "invalid", field: "delay"},
		"negative duration":     {body: job(`"delay":"-1s"`), status: 400, code: "invalid", field: "delay"},
		"long duration":         {body: job(`"delay":"9000h"`), status: 400, code: "invalid", field: "delay"},
		"bad time":              {body: job(`"not_before":"tomorrow"`), status: 400, code: "invalid", field: "not_before"},
		"never":                 {body: job(`"not_before":"9999-12-31T00:00:00Z"`), status: 400, code: "invalid", field: "not_before"},
		"the zero time":         {body: job(`"not_before":"0001-01-01T00:00:00Z"`), status: 400, code: "invalid", field: "not_before"},
		"delay and time":        {body: job(`"delay":"1s","not_before":"2030-01-01T00:00:00Z"`), status: 400, code: "invalid", field: "not_before"},
		"cost of nothing":       {body: job(`"cost":0`), status: 400, code: "invalid", field: "cost"},
		"half a cost":           {body: job(`"cost":0.5`), status: 400, code: "invalid", field: "cost"},
		"cost as text":          {body: job(`"cost":"5"`), status: 400, code: "invalid", field: "cost"},
		"huge cost":             {body: job(`"cost":1000001`), status: 400, code: "invalid", field: "cost"},
		"no attempt":            {body: job(`"max_attempts":0`), status: 400, code: "invalid", field: "max_attempts"},
		"many attempts":         {body: job(`"max_attempts":1001`), status: 400, code: "invalid", field: "max_attempts"},
		"no content type":       {body: job(""), headers: []string{"Content-Type", ""}, status: 415, code: "unsupported-media-type"},
		"a form":                {body: job(""), headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: "unsupported-media-type"},
		"compressed":            {body: job(""), headers: []string{"Content-Encoding", "gzip"}, status: 415, code: "unsupported-media-type"},
		"another key than id":   {body: job(`"id":"a"`), headers: []string{"Idempotency-Key", "b"}, status: 400, code: "invalid", field: "id"},
		"odd key":               {body: job(""), headers: []string{"Idempotency-Key", "a\tü"}, status: 400, code: "invalid", field: "Idempotency-Key"},
		"key that does not end": {body: job(""), headers: []string{"Idempotency-Key", `"a`}, status: 400, code: "invalid", field: "Idempotency-Key"},
		"empty key":             {body: job(""), headers: []string{"Idempotency-Key", `""`}, status: 400, code: "invalid", field: "Idempotency-Key"},
		"batch with a key":      {path: jobs + "/batch", body: "[" + job("") + "]", headers: []string{"Idempotency-Key", "a"}, status: 400, code: "invalid"},
		"batch of nothing":      {path: jobs + "/batch", body: "[]", status: 400, code: "invalid"},
		"batch of one object":   {path: jobs + "/batch", body: job(""), status: 400, code: "invalid"},
		"batch cut off":         {path: jobs + "/batch", body: "[" + job(""), status: 400, code: "invalid"},
		"batch of too many":     {path: jobs + "/batch", body: "[1" + strings.Repeat(",1", 1000) + "]", status: 413, code: "too-large"},
		"batch too large":       {path: jobs + "/batch", body: `["` + strings.Repeat("x", 8<<20) + `"]`, status: 413, code: "too-large"},
		"batch of bad ones":     {path: jobs + "/batch", body: `[1,{"payload":1},"x"]`, status: 400, code: "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			path := test.path
			if path == "" {
				path = jobs
			}
			a := api.do("POST", path, test.body, test.headers...).want(test.status, test.code)
			a.has("type", "https://tundish.io/problems/"+test.code)
			if test.field == "" {
				return
			}
			list, _ := a.json["errors"].([]any)
			if len(list) == 0 || list[0].(map[string]any)["field"] != test.field || list[0].(map[string]any)["reason"] == "" {
				t.Errorf("want a fault of %s: %s", test.field, a.text)
			}
		})
	}
	if n, err := store.Client().DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("bad input wrote %d keys, %v", n, err)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	a := api.do("POST", jobs, `{"colour":1,"delay":5,"method":"?","id":"a b"}`).want(400, "invalid")
	must.Equal(t, len(a.json["errors"].([]any)), 6, "faults, want colour, delay, payload, id, url, method: %s", a.text)
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `,"%d%s":1`, i, strings.Repeat("x", 100))
	}
	a = api.do("POST", "/v1/buckets/roomy/jobs/batch", `[{"payload":1`+many.String()+`}]`).want(400, "invalid")
	if len(a.text) > 8<<10 {
		t.Errorf("an answer of %d bytes: want a few faults", len(a.text))
	}
}

func TestUnknownJob(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	for _, method := range []string{"GET", "DELETE"} {
		api.do(method, jobs+"/nobody", "").want(404, "unknown-job")
		api.do(method, jobs+"/a%2fb", "").want(404, "unknown-job")
		api.do(method, "/v1/buckets/nobody/jobs/a", "").want(404, "unknown-bucket")
	}
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	producerAPIOn(t, store.URL(), patience).do("POST", jobs, job("")).want(202, "")
	gone, hung := producerAPIOn(t, "redis://127.0.0.1:1", redisconn.DefaultTimeout), producerAPIOn(t, store.URL(), redisconn.DefaultTimeout)
	store.Stop()
	for name, api := range map[string]*server{"gone": gone, "hung": hung} {
		t.Run(name, func(t *testing.T) {
			for _, a := range []*answer{
				api.do("POST", jobs, job("")),
				api.do("POST", jobs+"/batch", "["+job("")+"]"),
				api.do("GET", jobs+"/a", ""),
				api.do("DELETE", jobs+"/a", ""),
			} {
				a.want(http.StatusServiceUnavailable, "store-unavailable").wantHeader("Retry-After", "1")
				a.has("retry_after", float64(1))
				if a.took > 15*time.Second { // ten times what is configured: nobody waits for ever
					t.Errorf("took %s", a.took)
				}
				if strings.Contains(a.text, "127.0.0.1:") {
					t.Errorf("tells where Redis is: %s", a.text)
				}
			}
		})
	}
}

// TestUnknownOutcome sends again what was answered 503: under the id that the
// problem tells, there is one job.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	api.do("POST", jobs, job("")).want(202, "")
	impatient := producerAPIOn(t, store.URL(), redisconn.DefaultTimeout)
	store.Stop()
	a := impatient.do("POST", jobs, job("")).want(503, "store-unavailable")
	store.Cont()
	ids := a.json["ids"].([]any)
	must.Be(t, len(ids), 1, "ids: %v", ids)
	id := ids[0].(string)
	api.do("POST", jobs, job(`"id":"`+id+`"`)).want(202, "").has("id", id)
	must.Equal(t, depth(t, store), 2, "jobs")
}

func depth(t *testing.T, store *redistest.Server) int64 {
	t.Helper()
	infos := must.Get(newOperator(t, store.Client(), nil, buckets(t)).BucketInfos(t.Context(), "roomy"))(t)
	return infos[0].Unfinished
}

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func drawJob(t *rapid.T) shaper.Job {
	return shaper.Job{
		Bucket: "b", ID: "x", Flow: rapid.String().Draw(t, "flow"), URL: rapid.String().Draw(t, "url"),
		Method: rapid.SampledFrom([]string{"", "PUT", "a b\n"}).Draw(t, "method"),
		Headers: rapid.OneOf(rapid.Just(map[string][]string(nil)),
			rapid.MapOfN(rapid.String(), rapid.SliceOfN(rapid.String(), 1, 3), 1, 3)).Draw(t, "headers"),
		Payload: rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "payload"), MaxAttempts: rapid.IntRange(0, 9).Draw(t, "attempts"),
		Delay: time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "delay")) * time.Microsecond,
		Cost:  rapid.Int64Range(0, 3).Draw(t, "cost"),

		ExpiresIn: time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 1e12}).Draw(t, "expires")) * time.Microsecond,

		Caller: rapid.SampledFrom([]string{"", "", "anna"}).Draw(t, "caller"),
		Units:  rapid.SampledFrom([]shaper.Units{nil, nil, {shaper.UnitInput: 1200, shaper.UnitOutput: 400}}).Draw(t, "units"),

		CallbackURL: rapid.SampledFrom([]string{"", "", "https://a.example/"}).Draw(t, "callback URL"),
		FailureURL:  rapid.SampledFrom([]string{"", "", "https://b.example/\n"}).Draw(t, "failure URL"),
	}
}

// What is sealed is what is opened, and the mark is that of the content.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		job, generated := drawJob(t), rapid.Bool().Draw(t, "generated")
		how := Sealing{
			IsGenerated: generated, HasCallback: rapid.Bool().Draw(t, "callback"), HasBatches: rapid.Bool().Draw(t, "batches"),
			Sender: rapid.SampledFrom([]string{"", "tundish:answers:a"}).Draw(t, "sender"),
		}
		packed := must.Get(Seal(nil, &job, how))(t)
		mark, content := string(packed[:MarkLength]), contentOf(&job)
		index := rapid.IntRange(1, 256).Draw(t, "index")
		SetIndex(packed, index)
		body := fmt.Sprintf("%d %d ", -3, 1783228800123456) + string(packed)
		got := must.Get(Open(body))(t)
		if got.Mark != mark+shaper.CallerMark(job.Caller) || !got.Owner().Is(job.Caller) != (job.Caller == "") || len(shaper.CallerMark(job.Caller)) > 7 || got.sequence != int64(index)-3 || got.Enqueued != 1783228800123456 || !bytes.Equal(got.Payload, job.Payload) ||
			got.Flow != job.Flow || got.URL != job.URL || got.Method != job.Method || !maps.EqualFunc(got.Headers, job.Headers, slices.Equal) ||
			got.MaxAttempts != job.MaxAttempts || got.CallbackURL != job.CallbackURL || got.FailureURL != job.FailureURL || got.Sender != how.Sender {
			t.Fatalf("sealed %+v, opened %+v", job, got)
		}
		if first, _, _ := strings.Cut(body, "\n"); how.HasCallback && got.Callback != first || !how.HasCallback && got.Callback != "" {
			t.Fatalf("of %q the callback is %q, want one: %t", body, got.Callback, how.HasCallback)
		}
		other := drawJob(t)
		again, err := Seal(nil, &other, Sealing{IsGenerated: generated})
		if err != nil || (string(again[:MarkLength]) == mark) != (contentOf(&other) == content) {
			t.Fatalf("%v: %q and %q", err, packed, again)
		}
		SetIndex(again, 7)
		inItsRoom := must.Get(Seal(again, &job, how))(t)
		if SetIndex(inItsRoom, index); !bytes.Equal(inItsRoom, packed) {
			t.Fatalf("sealed anew %q, in the room of another %q", packed, inItsRoom)
		}
	})
}

// The head of a job tells which jobs may leave together with it, and nothing where the job names nothing of its own.
func TestAgreement(t *testing.T) {
	t.Parallel()
	head := func(job shaper.Job, callback bool) string {
		packed := must.Get(Seal(nil, &job, Sealing{HasCallback: callback, HasBatches: true}))(t)
		SetIndex(packed, 1)
		text, _, _ := strings.Cut(string(packed), " ")
		return text[MarkLength+indexLength:]
	}
	headers := func(name, value string) map[string][]string { return map[string][]string{name: {value}} }
	x := head(shaper.Job{URL: "https://a.example/"}, false)
	for _, c := range []struct {
		name string
		job  shaper.Job
		want string
	}{
		{"nothing", shaper.Job{Payload: []byte("1")}, ""},
		{"POST", shaper.Job{Method: "POST"}, ""},
		{"a trace", shaper.Job{Headers: headers("Traceparent", "00")}, ""},
		{"no body", shaper.Job{Method: "GET", URL: "https://a.example/"}, "~=!"},
		{"the same URL", shaper.Job{URL: "https://a.example/", Payload: []byte("2"), Method: "POST", MaxAttempts: 3}, x},
		{"the same URL, expires", shaper.Job{URL: "https://a.example/", ExpiresIn: time.Second}, "~1000000" + strings.TrimPrefix(x, "~")},
	} {
		must.Equal(t, head(c.job, false), c.want, "%s", c.name)
		must.Equal(t, head(c.job, true), c.want+"^", "%s, with a callback", c.name)
	}
	seen := map[string]string{}
	for name, job := range map[string]shaper.Job{
		"URL": {URL: "https://a.example/"}, "path": {URL: "https://a.example/b"}, "method": {URL: "https://a.example/", Method: "PUT"},
		"type": {Headers: headers("Content-Type", "text/plain")}, "header": {Headers: headers("X-A", "text/plain")}, "value": {Headers: headers("X-A", "b")},
	} {
		got := head(job, false)
		if other, twice := seen[got]; twice || len(got) != len("~=12345678") {
			t.Errorf("%s has %q, as %s", name, got, other)
		}
		seen[got] = name
	}
	selfDispatched, err := Seal(nil, &shaper.Job{URL: "https://a.example/", Units: shaper.Units{shaper.UnitInput: 5}}, Sealing{Sender: "tundish:answers:a", HasCallback: true})
	if err != nil || !strings.Contains(string(selfDispatched), "~=!$input:5>^ {") {
		t.Errorf("a job that its producer sends has the head %q, %v", selfDispatched, err)
	}
	if a, b := head(shaper.Job{Headers: headers("x-a", "1")}, false), head(shaper.Job{Headers: headers("X-A", "1")}, false); a != b {
		t.Errorf("the same header is %q and %q", a, b)
	}
}

// Jobs that differ in their Trace Context only have the same mark, and each keeps its own.
func TestTraceIsNotContent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		job := drawJob(t)
		plain := must.Get(Seal(nil, &job, Sealing{}))(t)
		job.Headers = maps.Clone(job.Headers)
		if job.Headers == nil {
			job.Headers = map[string][]string{}
		}
		parent := rapid.SampledFrom([]string{"traceparent", "Traceparent", "TRACEPARENT"}).Draw(t, "parent")
		job.Headers[parent], job.Headers["tracestate"] = []string{rapid.String().Draw(t, "trace")}, []string{"a=b"}
		traced := must.Get(Seal(nil, &job, Sealing{}))(t)
		must.Be(t, string(traced[:MarkLength]), string(plain[:MarkLength]), "sealed %q, with a trace %q", plain, traced)
		SetIndex(traced, 1)
		if got, err := Open("0 0 " + string(traced)); err != nil || !slices.Equal(got.Headers[parent], job.Headers[parent]) || !bytes.Equal(got.Payload, job.Payload) {
			t.Fatalf("sealed %+v, opened %+v, %v", job, got, err)
		}
	})
}

// contentOf is what the mark of a sealed job is of.
// contentOf is what the mark of a job is made of: who waits for it is not.
func contentOf(job *shaper.Job) string {
	sealed, err := Seal(nil, job, Sealing{})
	if err != nil {
		panic(err)
	}
	_, content, _ := strings.Cut(string(sealed), " ")
	return content
}

func FuzzOpen(f *testing.F) {
	for _, body := range []string{"", "1 2 ", "0 5 AAAAAAAAAAAcn001 \nx", "0 5 AAAAAAAAAAAcn002~77 {}\n", "a b AAAAAAAAAAAcn001 {\n", "-1 5 AAAAAAAAAAACl001 \n", "0 5 AAAAAAAAAAAcn002~77^ {}\n", "0 5 AAAAAAAAAAAcn002^ \n", "0 5 AAAAAAAAAAAcn002~77annaXYZ=abc^ {}\n", "0 5 AAAAAAAAAAAcn002~annaXYZ \n", "0 5 AAAAAAAAAAAcn002~annaXYZ=$input:1,output:2^ {}\n", "0 5 AAAAAAAAAAAcn002~7=!$input:1>^ {}\n"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		job, err := Open(body)
		if (err != nil) != errors.Is(err, errBody) {
			t.Errorf("error %v", err)
		}
		if err == nil && (len(job.Mark) < MarkLength || !strings.HasSuffix(body, "\n"+string(job.Payload))) {
			t.Errorf("opened %q as %+v", body, job)
		}
	})
}

func FuzzParseMeta(f *testing.F) {
	for _, text := range []string{"", "3 1 0 0 0 c ", `5 2 1 0 0 c {"cause":"poison"}`, "3 x 0 0 0 c ", "3 1 0 0 0 c {"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseMeta(text) })
}

func FuzzOpenCallback(f *testing.F) {
	for _, text := range []string{"", "0 5 AAAAAAAAAAAcn001^ {}\n{\"state\":\"done\"}\nbody", "0 5 AAAAAAAAAAAcn001^ \n5 2 1 0 0 c {\"status\":500}\n", "\n\n"} {
		f.Add("1783228800123456 1 j", text)
		f.Add("x", text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		if c, err := OpenCallback("b", name, text); err == nil && !strings.HasSuffix(name, " "+c.Result.ID) {
			t.Errorf("opened %q %q as %+v", name, text, c)
		}
	})
}

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

const (
	importJobs  = 500     // of one batch
	importBytes = 4 << 20 // of one batch, one line more or less

	standardInput = "-"
)

// importFlags are the flags of `producer import`.
type importFlags struct {
	server, key string
	csv         bool
	template    string
	separator   string
	rejects     string
	resume      bool
}

func (a *invocation) importCommand() *cobra.Command {
	var flags importFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "import BUCKET FILE",
		Short: "Enqueue a file of jobs, which a second run does not double",
		Long: `Enqueue a file of jobs: each line is a whole job as JSON, with its payload, url, path,
headers and so on. With --csv and --template, each row of the file makes a job: the
template is the job as JSON, in which {{json .name}} is the text of the column "name" with
its quotes, and {{path .name}} the same percent-encoded, without quotes. The columns may be
separated by commas, semicolons, tabs or pipes.

The file is UTF-8, with or without a byte order mark. A line in another encoding is rejected,
because its letters would be delivered as others.

A job without an id gets one that is made of its line, and of how many equal lines stand
above it: two equal lines are two jobs, and a second run of the same file makes no second
job while the bucket remembers ids (dedupe_window). A refused job waits until there is
room. A line that can never get in is written to a file of rejects with the reason, and
the exit code is then 1. With --resume, a run goes on behind the last line that was
answered. FILE may be - for standard input, of which nothing is remembered to go on from.`,
		Example: `  producer import webhooks jobs.ndjson
  producer import webhooks jobs.ndjson --resume
  producer import crm customers.csv --csv --template '{"method":"GET","path":"customers/{{path .id}}"}'
  seq 3 | sed 's/.*/{"payload":{"n":&}}/' | producer import webhooks -`,
		Args: positional("BUCKET", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.csv != (flags.template != "") {
				return wrongUsage(cmd, "--csv and --template go together")
			}
			if _, known := separatorNames[flags.separator]; flags.separator != "" && (!flags.csv || !known) {
				return wrongUsage(cmd, "--separator %q: want comma, semicolon, tab or pipe, with --csv", flags.separator)
			}
			if flags.resume && args[1] == standardInput {
				return wrongUsage(cmd, "--resume goes on in a FILE: of standard input nothing is remembered")
			}
			return a.runImport(cmd, args[0], args[1], flags)
		},
	})
	f := cmd.Flags()
	f.StringVar(&flags.server, "server", "", "`address` of the API (default: producer.listen of the configuration)")
	keyFlag(cmd, &flags.key)
	f.BoolVar(&flags.csv, "csv", false, "the file is CSV (RFC 4180), its first row has the names of the columns")
	f.StringVar(&flags.template, "template", "", "`job` as JSON, made of each row")
	f.StringVar(&flags.separator, "separator", "", "`character` between the columns of --csv: comma, semicolon, tab or pipe (default: by the first row)")
	f.StringVar(&flags.rejects, "rejects", "", "`file` for lines that can never get in (default: FILE.rejects.ndjson, or rejects.ndjson of standard input)")
	f.BoolVar(&flags.resume, "resume", false, "go on behind the last line that an earlier run has had answered")
	return cmd
}

func (a *invocation) runImport(cmd *cobra.Command, bucket, path string, flags importFlags) (err error) {
	server, err := a.server(flags.server)
	if err != nil {
		return err
	}
	key, err := a.clientKey(flags.key)
	if err != nil {
		return err
	}
	i := &importer{
		app: a, state: importState{Bucket: bucket}, rejects: rejects{path: flags.rejects}, began: time.Now(), send: newSender(server, bucket, true, a.note),
	}
	if path == standardInput {
		i.rejects.path = cmp.Or(flags.rejects, "rejects.ndjson")
		i.source, err = newJobSource(a.in, flags)
	} else {
		file, failed := os.Open(path) //nolint:gosec // the user names the file
		if failed != nil {
			return fail(exitUsage, "%v", failed)
		}
		defer file.Close()
		i.state.path, i.rejects.path = path+".import", cmp.Or(flags.rejects, path+".rejects.ndjson")
		if info, failed := file.Stat(); failed == nil {
			i.size = info.Size()
		}
		i.source, err = newJobSource(file, flags)
	}
	if err != nil {
		return wrongUsage(cmd, "%v", err)
	}
	i.send.key = key
	defer i.send.http.CloseIdleConnections()
	if flags.resume {
		if err := i.state.read(); err != nil {
			return err
		}
		i.sum = i.state.Sum
	}
	a.warnOfWindow(bucket, i)
	err = errors.Join(i.run(cmd.Context()), i.rejects.close())
	if printErr := a.print(i.sum, func(w io.Writer) { fmt.Fprintln(w, i.sum) }); err == nil {
		err = printErr
	}
	switch {
	case err != nil:
		return err
	case i.sum.Rejected > 0:
		return fail(exitFailed, "%s can never get in: see %s", opsview.Count(i.sum.Rejected, "line"), i.rejects.path)
	}
	return i.state.remove()
}

// importSum is the result of the lines of a file.
type importSum struct {
	Lines    int64 `json:"lines"`
	Admitted int64 `json:"admitted"`
	There    int64 `json:"there_already"` // duplicates, and ids of jobs that have ended
	Rejected int64 `json:"rejected"`
}

func (s importSum) String() string {
	return fmt.Sprintf("%s: %d admitted, %d there already, %d rejected", opsview.Count(s.Lines, "line"), s.Admitted, s.There, s.Rejected)
}

// importer sends the jobs of a file in batches, one after the other.
type importer struct {
	app     *invocation
	source  *jobSource
	send    *sender
	state   importState
	rejects rejects
	sum     importSum
	size    int64 // of the file
	began   time.Time
	printed time.Time
}

func (i *importer) run(ctx context.Context) error {
	for {
		batch, err := i.source.batch(i.state.Line)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
		for left := batch; len(left) > 0; {
			wait := time.Duration(0)
			if left, wait, err = i.sendBatch(ctx, left); err != nil {
				return err
			}
			if len(left) > 0 {
				if err := i.send.pause(ctx, wait); err != nil {
					return err
				}
			}
		}
		i.sum.Lines = batch[len(batch)-1].line
		i.state.Line, i.state.Sum = i.sum.Lines, i.sum
		if err := errors.Join(i.rejects.flush(), i.state.write()); err != nil {
			return err
		}
		i.progress()
	}
}

// sendBatch sends jobs and returns those that are refused for now, and how long to wait.
func (i *importer) sendBatch(ctx context.Context, batch []sourceJob) (left []sourceJob, wait time.Duration, err error) {
	var body bytes.Buffer
	for _, job := range batch {
		if job.fault == "" {
			body.Write(job.text)
			body.WriteByte('\n')
		}
	}
	var answers []answer
	if body.Len() > 0 {
		if answers, err = i.send.postBatch(ctx, body.Bytes()); err != nil {
			return nil, 0, err
		}
	}
	for _, job := range batch {
		if job.fault != "" {
			i.reject(job, job.fault)
			continue
		}
		if len(answers) == 0 {
			return nil, 0, fail(exitUnreachable, "%s answered for fewer jobs than it was sent", i.send.server)
		}
		a := answers[0]
		answers = answers[1:]
		switch {
		case a.in() && a.Duplicate, a.Code == string(shaper.ReasonIDEnded):
			i.sum.There++
		case a.in():
			i.sum.Admitted++
		case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable:
			left = append(left, job)
			// The wait of the last job holds for all, as they come in order.
			wait = min(max(wait, time.Duration(a.RetryAfter)*time.Second, time.Second), time.Minute)
		default:
			i.reject(job, a.refusal())
		}
	}
	return left, wait, nil
}

func (i *importer) reject(job sourceJob, reason string) {
	i.sum.Rejected++
	i.rejects.add(job, reason)
}

// progress shows the progress of the import, about every second.
func (i *importer) progress() {
	if !isTerminal(i.app.err) || time.Since(i.printed) < time.Second {
		return
	}
	i.printed = time.Now()
	if i.size == 0 {
		i.app.note("%s", i.sum)
		return
	}
	took, read := time.Since(i.began), i.source.read.n.Load()
	eta := "-"
	if read > 0 && i.size > read {
		eta = human(time.Duration(float64(took) * float64(i.size-read) / float64(read)))
	}
	i.app.note("%s; %.0f %% of the file, done in about %s", i.sum, 100*float64(read)/float64(i.size), eta)
}

// warnOfWindow warns before a long import that a second run of it could enqueue jobs twice.
func (a *invocation) warnOfWindow(bucket string, i *importer) {
	cfg, err := a.load()
	if err != nil {
		return // no configuration to ask
	}
	for _, b := range cfg.Buckets {
		line := i.source.lineBytes()
		if b.Name != bucket || line == 0 {
			continue
		}
		drain := importTime(float64(i.size), line, &b.Bucket)
		if drain > b.DedupeWindow {
			a.note("the bucket needs about %s for this file at %s, and remembers ids of jobs that are done for dedupe_window (%s) only: "+
				"do not run it again without --resume, or raise dedupe_window", human(drain), b.Rate, human(b.DedupeWindow))
		}
	}
}

// importTime returns how long a bucket needs for a file, by the bytes of one of its lines. For a bucket with batches it counts full ones.
func importTime(size, line float64, b *shaper.Bucket) time.Duration {
	requests := size / line
	if b.Batch.Has() {
		jobs := float64(b.Batch.MaxSize)
		if b.Batch.MaxBytes > 0 {
			jobs = min(jobs, float64(b.Batch.MaxBytes)/line)
		}
		requests /= max(jobs, 1)
	}
	return time.Duration(requests / b.Rate.PerSecond() * float64(time.Second))
}

// postBatch enqueues lines of jobs and returns the result of each.
func (s *sender) postBatch(ctx context.Context, lines []byte) ([]answer, error) {
	for {
		var tally struct {
			Results []answer `json:"results"`
		}
		whole, err := s.postTo(ctx, "/jobs/batch", "application/x-ndjson", "", lines)
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(whole.raw, &tally) == nil && len(tally.Results) > 0 {
			return tally.Results, nil
		}
		if whole.Status != http.StatusServiceUnavailable && whole.Status != http.StatusTooManyRequests {
			return nil, fail(whole.exitCode(), "%s", whole.refusal())
		}
		s.note("waiting: %s", strings.TrimSpace(whole.refusal()))
		if err := s.pause(ctx, max(time.Duration(whole.RetryAfter)*time.Second, time.Second)); err != nil {
			return nil, err
		}
	}
}

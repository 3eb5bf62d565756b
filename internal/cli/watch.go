package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/fleet"
)

func (a *invocation) watchCommand() *cobra.Command {
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "watch [BUCKET]",
		Short: "Watch what comes in and what leaves, each second",
		Long: `Watch what all processes count, each second, until Ctrl-C or for the time of --for: a line for each
bucket in which something happened. Of one BUCKET the line has a picture of the second, too, a bar
for each 100 ms: uneven in, even out. Every ten seconds it says whether the bucket delivers, and what
keeps its jobs; of all buckets it says so of each that has a problem. It begins after some seconds, as processes learn at their next
heartbeat that the bucket is being watched.`,
		Example: `  dispatcher watch
  dispatcher watch webhooks
  dispatcher watch webhooks --for 1m --json | jq -r '.buckets.webhooks.departed'`,
		Args: positional("[BUCKET]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lasts < 0 {
				return wrongUsage(cmd, "--for %s: want more than 0s", lasts)
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.watch(ctx, c, lasts, args...) })
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "watch for this `time` from the first line on, such as 10s (default: until Ctrl-C)")
	return a.serverFlags(cmd)
}

// firstLine is the longest that watch waits for its first line.
const firstLine = 10 * time.Second

func (a *invocation) watch(ctx context.Context, c *api, lasts time.Duration, bucket ...string) error {
	shown := func() {}
	if lasts > 0 { // from the first line on, which may have to wait
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		end := time.AfterFunc(lasts+firstLine, cancel)
		defer end.Stop()
		shown = sync.OnceFunc(func() { end.Reset(lasts) })
	}
	name := strings.Join(bucket, "") // "" of none
	if name == "" {
		// A stream of all buckets begins without Redis, and would be empty.
		if _, err := c.buckets(ctx); err != nil {
			return err
		}
	}
	waits := false
	var judged time.Time
	for {
		err := c.seconds(ctx, name, func(second *fleet.Second) error {
			isEmpty := second.Reporting < second.Processes && len(second.Buckets) == 0
			if !isEmpty {
				shown()
			}
			if a.json {
				return json.NewEncoder(a.out).Encode(second)
			}
			if isEmpty {
				if !waits {
					a.note("waiting until all processes report each second: up to 6 s")
				}
				waits = true
				return nil
			}
			if err := writeSecond(a.out, second, name); err != nil || second.At.Sub(judged) < judgeEvery {
				return err
			}
			judged = second.At
			return a.writeVerdicts(ctx, c, judged, name)
		})
		if err == nil {
			err = pause(ctx, time.Second) // the server stopped, or this reader was slow: reconnect
		}
		if ctx.Err() != nil { // the time is over, or Ctrl-C
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// judgeEvery is how often verdicts are printed between the seconds.
const judgeEvery = 10 * time.Second

// writeVerdicts prints the verdict on a bucket or, without a name, on each bucket that has a problem.
func (a *invocation) writeVerdicts(ctx context.Context, c *api, at time.Time, name string) error {
	var list []*opsview.Bucket
	var err error
	if name == "" {
		list, err = c.buckets(ctx)
	} else {
		var v *opsview.Bucket
		v, err = c.bucket(ctx, name)
		list = []*opsview.Bucket{v}
	}
	if err != nil {
		return err
	}
	for _, v := range list {
		if name == "" && !v.Verdict.Problem {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%s  %s  %s: %s\n", at.UTC().Format(time.TimeOnly), v.Name, v.Verdict.Code, v.Verdict.Sentence); err != nil {
			return err
		}
	}
	return nil
}

// writeSecond writes a line for each bucket, or the one of the bucket that is watched.
func writeSecond(w io.Writer, s *fleet.Second, watched string) error {
	at := s.At.UTC().Format(time.TimeOnly)
	var b strings.Builder
	for _, lost := range s.Lost {
		fmt.Fprintf(&b, "%s  %s no longer reports: what it counted last is missing\n", at, lost)
	}
	names := slices.Sorted(maps.Keys(s.Buckets))
	if watched != "" {
		names = []string{watched}
	}
	for _, name := range names {
		c := s.Buckets[name]
		fmt.Fprintf(&b, "%s  %s  in %5d %s  out %5d %s  refused %d  failed %d\n", at, name,
			c.Arrived, secondPicture(s.Bins, func(c fleet.Counts) int64 { return c.Arrived }), c.Departed, secondPicture(s.Bins, func(c fleet.Counts) int64 { return c.Departed }), c.Refused, c.Failed)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// secondPicture is a picture of a second, between bars; "" without bins.
func secondPicture(bins []fleet.BinCounts, of func(fleet.Counts) int64) string {
	if len(bins) == 0 {
		return ""
	}
	numbers := make([]int64, len(bins))
	for i, b := range bins {
		numbers[i] = of(b.Counts)
	}
	return "|" + picture(numbers, 0) + "|"
}

// seconds calls handle with each second of the stream until it ends, or handle returns an error.
func (c *api) seconds(ctx context.Context, bucket string, handle func(*fleet.Second) error) error {
	target := "/v1/stream"
	if bucket != "" {
		target += "?bucket=" + url.QueryEscape(bucket)
	}
	ctx, cause := httpapi.WithCause(ctx)
	req, err := c.request(ctx, http.MethodGet, target, "", nil)
	if err != nil {
		return err
	}
	endless := *c.http
	endless.Timeout = 0
	resp, err := endless.Do(req)
	if err != nil {
		return c.unreachable(ctx, req.Method, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, c.bound))
		if err != nil {
			return c.unreachable(ctx, req.Method, err)
		}
		return c.problemOf(resp, text, *cause)
	}
	lines := bufio.NewScanner(resp.Body)
	const longest = 4 << 20 // bytes of a second
	lines.Buffer(nil, longest)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var second fleet.Second
		if err := json.Unmarshal([]byte(data), &second); err != nil {
			return fail(exitUnreachable, "%s sent something other than the counts of a second: %w", c.server, err)
		}
		if err := handle(&second); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return c.unreachable(ctx, req.Method, err)
	}
	return nil
}

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) flowImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import BUCKET FILE",
		Short: "Give many flows their settings, from a file",
		Long: `Give many flows their settings, from a file, or from standard input (-). Each line is a flow
as JSON: its name, its group where there are groups, and the settings that it is to have, such
as url, secrets, headers, rate and weight. A setting that a line does not name returns to the
value for all flows, but url, headers and secrets stay. Flows without a line stay as they are.

The lines are checked before the first is written. A file of more than 10,000 lines or 4 MiB is
checked and written in parts. A second run of the same file changes nothing. The file holds
secrets: remove it afterwards, or make it on the way.`,
		Example: `  echo '{"flow":"acme","url":"https://acme.example/hook","secrets":["whsec_…"]}' | dispatcher flow import webhooks -
  dispatcher flow import webhooks customers.ndjson --json`,
		Args: positional("BUCKET", "FILE"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := cmd.InOrStdin()
		if args[1] != "-" {
			file, err := os.Open(args[1])
			if err != nil {
				return fail(exitUsage, "%v", err)
			}
			defer file.Close()
			in = file
		}
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			i := &flowImport{app: a, api: c, bucket: args[0], lines: bufio.NewReader(inputtext.NewReader(in))}
			err := i.run(ctx)
			if err == nil {
				return a.print(i.put, func(w io.Writer) { fmt.Fprintf(w, "%s set\n", opsview.Count(i.put.Flows, "flow")) })
			}
			if i.put.Flows > 0 {
				return fail(codeOf(err), "%w; %s set before that: run it again once it is mended, which is safe", err, opsview.Count(i.put.Flows, "flow"))
			}
			return err
		})
	}
	a.jsonFlag(cmd)
	return cmd
}

// flowImport sends the lines of a file in parts.
type flowImport struct {
	app     *invocation
	api     *api
	bucket  string
	lines   *bufio.Reader
	before  int // lines of the parts before
	put     httpapi.FlowsPut
	held    []byte // a line that did not fit into the previous part
	printed time.Time
}

func (i *flowImport) run(ctx context.Context) error {
	i.put.Bucket = i.bucket
	for {
		part, n, err := i.next()
		if err != nil {
			return err
		}
		if n == 0 {
			if i.put.Flows == 0 {
				return fail(exitUsage, "there are no lines: want a flow as JSON on each")
			}
			return nil
		}
		for left := part; left != nil; {
			if left, err = i.send(ctx, left); err != nil {
				return err
			}
		}
		i.before += n
		if isTerminal(i.app.err) && time.Since(i.printed) >= time.Second {
			i.printed = time.Now()
			i.app.note("%s set so far", opsview.Count(i.put.Flows, "flow"))
		}
	}
}

// next is the next part of the file, and how many lines it has; 0 at the end.
func (i *flowImport) next() (part []byte, n int, err error) {
	for n < httpapi.MaxFlowLines {
		text := i.held
		i.held = nil
		if text == nil {
			if text, err = i.lines.ReadBytes('\n'); err != nil && !errors.Is(err, io.EOF) {
				return nil, 0, fail(exitFailed, "line %d: %w", i.before+n+1, err)
			}
		}
		switch {
		case len(text) == 0:
			return part, n, nil
		case len(text) > httpapi.MaxFlowBytes/2:
			return nil, 0, fail(exitUsage, "line %d is longer than %d bytes", i.before+n+1, httpapi.MaxFlowBytes/2)
		case len(part)+len(text) > httpapi.MaxFlowBytes:
			i.held = text
			return part, n, nil
		}
		part, n = append(part, text...), n+1
	}
	return part, n, nil
}

// send sends lines. It returns the lines that are to be sent again, because the server had no time for them: nil if there are none.
func (i *flowImport) send(ctx context.Context, part []byte) (left []byte, err error) {
	put, err := call(ctx, i.api, httpapi.PutFlows, httpapi.FlowLines{BucketName: httpapi.BucketName{Bucket: i.bucket}, Lines: part})
	if p, ok := errors.AsType[*problem](err); ok {
		for k := range p.Errors {
			p.Errors[k].Field = lineNumber.ReplaceAllStringFunc(p.Errors[k].Field, func(text string) string {
				n, _ := strconv.Atoi(text[len("line "):])
				return fmt.Sprintf("line %d", n+i.before)
			})
		}
	}
	if err != nil {
		return nil, named(err, "bucket", i.bucket)
	}
	i.put.Flows += put.Flows
	switch {
	case !put.More:
		return nil, nil
	case put.Flows == 0: // otherwise this would go on for ever
		return nil, fail(exitUnreachable, "the server had no time to write one flow of bucket %q: Redis is slow, or overloaded; run it again later, which is safe", i.bucket)
	}
	// Empty lines in front keep the numbers of the others.
	var rest bytes.Buffer
	for text := range bytes.Lines(part) {
		if put.Flows > 0 && len(bytes.TrimSpace(text)) > 0 {
			put.Flows--
			text = []byte("\n")
		}
		rest.Write(text)
	}
	return rest.Bytes(), nil
}

var lineNumber = regexp.MustCompile(`^line \d+`)

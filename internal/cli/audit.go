package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper/audit"
)

func (a *invocation) auditCommand() *cobra.Command {
	var query httpapi.AuditQuery
	cmd := &cobra.Command{
		Use:   "audit [BUCKET]",
		Short: "Show who changed what",
		Long: `Show who changed what, the newest first: one line for each operation of the API, of these commands, and for
each reload of a configuration. OUTCOME is begun while an operation goes on, and stays so if its process
died: it may have changed something. Operations that changed nothing are counted in one line per hour.
--author shows records whose author contains the text, such as "key deploy" or alice@example.com.
Records are kept for 90 days, and up to 8 MiB (about 8000) per author. --logins shows logins of the
console instead. With --json they have all that is known, such as the address, the process and the id of
the request.`,
		Example: `  dispatcher audit webhooks
  dispatcher audit webhooks --author "key deploy"
  dispatcher audit --limit 1000 --json | jq -r '.records[] | select(.outcome == "failed") | .operation'`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			query.Bucket = args[0]
		}
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.showAudit(ctx, c, query) })
	}
	const most = 100
	cmd.Flags().StringVar(&query.Author, "author", "", "show only operations of authors whose text contains this `text`")
	cmd.Flags().BoolVar(&query.Logins, "logins", false, "show logins of the console instead of changes")
	cmd.Flags().IntVar(&query.Limit, "limit", most, "show so `many` at most, up to 1000")
	cmd.Flags().StringVar(&query.Cursor, "cursor", "", "go on behind the `text` that a list with --limit has named")
	a.jsonFlag(cmd)
	return a.serverFlags(cmd)
}

func (a *invocation) showAudit(ctx context.Context, c *api, query httpapi.AuditQuery) error {
	page, err := call(ctx, c, httpapi.ShowAudit, query)
	if err != nil {
		return err
	}
	if len(page.Records) == 0 && !a.json {
		if page.Next != "" {
			a.note("none of the newest records looked at is of such an author; go on with --cursor %s", page.Next)
			return nil
		}
		if query.Author != "" {
			a.note("no operation of an author that contains %q is kept here", query.Author)
			return nil
		}
		if query.Logins {
			a.note("nobody has logged in to the console in the last 90 days")
			return nil
		}
		a.note("no operation is on record here: records are kept for 90 days, and are lost with the data of Redis")
		return nil
	}
	err = a.print(page, func(w io.Writer) {
		fmt.Fprintln(w, "AT\tAUTHOR\tOPERATION\tON\tOUTCOME\tCOUNT\tWHAT")
		for i := range page.Records {
			r := &page.Records[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", stamp(r.At), line(r.Author, 60), r.Operation, line(objectText(r), 80), r.Outcome, countText(r.Count), line(whatText(r), 200))
		}
	})
	if err == nil && page.Next != "" && !a.json {
		a.note("there are more; go on with --cursor %s", page.Next)
	}
	return err
}

// objectText names the object of a record's change: "webhooks flow=acme".
func objectText(r *audit.Record) string {
	texts := []string{}
	if bucket := r.Object["bucket"]; bucket != "" {
		texts = append(texts, bucket)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Object)) {
		if kind != "bucket" {
			texts = append(texts, kind+"="+r.Object[kind])
		}
	}
	return cmp.Or(strings.Join(texts, " "), "-")
}

func countText(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// whatText returns the old and new values of changed settings, otherwise the request, and the reason.
func whatText(r *audit.Record) string {
	texts := []string{}
	switch {
	case r.Times > 1:
		texts = append(texts, fmt.Sprintf("%d times, the last at %s", r.Times, stamp(r.Last)))
	case !r.Last.IsZero():
		texts = append(texts, "its last part at "+stamp(r.Last))
	}
	for _, change := range r.Changes {
		texts = append(texts, fmt.Sprintf("%s %s → %s", change.Setting, cmp.Or(change.Before, "-"), cmp.Or(change.After, "-")))
	}
	if len(r.Changes) == 0 {
		for _, name := range slices.Sorted(maps.Keys(r.Asked)) {
			texts = append(texts, fmt.Sprintf("%s=%v", name, r.Asked[name]))
		}
	}
	for _, why := range []string{r.Reason, r.Detail} {
		if why != "" {
			texts = append(texts, why)
		}
	}
	return cmp.Or(strings.Join(texts, ", "), "-")
}

package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
)

// healthTimeout bounds the probe: an orchestrator repeats it.
const healthTimeout = 3 * time.Second

// healthCommand returns the command that asks the server of this program whether it is ready. listen returns its address in the configuration.
func (a *invocation) healthCommand(listen func(c *config.Config) string) *cobra.Command {
	var server string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask whether the " + a.program + " that runs here is ready",
		Long: `Ask /readyz of the ` + a.program + ` that the configuration names: it is ready when Redis answers and it does not
stop. For containers whose image has no curl, and for scripts. The exit code is 0 if it is ready, else 1.`,
		Example: `  ` + a.program + ` health
  ` + a.program + ` health --address http://127.0.0.1:8081`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if server == "" {
				cfg, err := a.addresses()
				if err != nil {
					return fail(exitFailed, "%w", err)
				}
				server = reachable(listen(cfg))
			}
			if !strings.Contains(server, "://") {
				server = "http://" + server
			}
			return a.health(cmd.Context(), strings.TrimRight(server, "/")+"/readyz?verbose")
		},
	}
	cmd.Flags().StringVar(&server, "address", "", "`address` to ask (default: the configured address)")
	return cmd
}

// reachable returns the address by which this machine reaches a server that listens at an address: for one that listens on all addresses, the local one.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		if host = "127.0.0.1"; ip != nil && ip.To4() == nil {
			host = "::1"
		}
		return net.JoinHostPort(host, port)
	}
	return listen
}

func (a *invocation) health(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fail(exitUsage, "--address is no address: want one such as http://127.0.0.1:8081")
	}
	client := newHTTPClient(healthTimeout)
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		return fail(exitFailed, "not ready: %s does not answer: %v", request.URL.Host, err)
	}
	defer response.Body.Close()
	const most = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, most)) // the status is enough
	if response.StatusCode != http.StatusOK {
		return fail(exitFailed, "not ready: %s answers %s\n%s", request.URL.Host, response.Status, strings.TrimSpace(string(text)))
	}
	a.note("ready: %s", request.URL.Host)
	return nil
}

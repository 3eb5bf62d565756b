package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
)

// server returns the base URL of the API: the flag, otherwise producer.listen of the configuration.
func (a *invocation) server(flag string) (string, error) {
	if flag == "" {
		cfg, err := a.addresses()
		if err != nil {
			return "", err
		}
		flag = cfg.Producer.Listen
	}
	if !strings.Contains(flag, "://") {
		flag = "http://" + flag
	}
	return strings.TrimRight(flag, "/"), nil
}

// missesVariable reports whether a secret is in a variable that only the daemons have.
func missesVariable(err error) bool {
	faults, _ := errors.AsType[config.Faults](err)
	return slices.ContainsFunc(faults, func(f config.Fault) bool {
		return strings.Contains(f.Reason, "the variable ") && strings.HasSuffix(f.Reason, " is not set")
	})
}

// keyFlag adds --key to a client's command.
func keyFlag(cmd *cobra.Command, key *string) {
	cmd.Flags().StringVar(key, "key", "", "API `key`, or file:/path or env:NAME (default: TUNDISH_KEY, or the file TUNDISH_KEY_FILE)")
}

// clientKey is the API key to send, or "".
func (a *invocation) clientKey(flag string) (config.Secret, error) {
	key, err := config.ClientKey(config.Options{Env: a.env}, flag)
	if err != nil {
		return "", fail(exitUsage, "no API key: %v", err)
	}
	return key, nil
}

package redisconn

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CredentialsOf returns the user and the password in a URL for [Connect]. The error shows no part of the URL that may be secret.
func CredentialsOf(url string) (user, password string, err error) {
	a, err := parseAddress(url)
	if err != nil {
		return "", "", err
	}
	return a.options.Username, a.options.Password, nil
}

// SentinelUserOf returns the user of the sentinels in a URL for [Connect], "" if it names none.
func SentinelUserOf(url string) string {
	a, err := parseAddress(url)
	if err != nil {
		return ""
	}
	return a.sentinelUser
}

// provider returns what go-redis asks for the credentials of each new connection, nil if read is nil.
func provider(read func() (user, password string, err error)) func(context.Context) (string, string, error) {
	if read == nil {
		return nil
	}
	return func(context.Context) (string, string, error) {
		user, password, err := read()
		if err != nil {
			err = fmt.Errorf("%w: %w", errPassword, err)
		}
		return user, password, err
	}
}

// addressOfMaster is the address that go-redis gives to a connection to a master that sentinels name. Connections to sentinels have the
// sentinel's address.
const addressOfMaster = "FailoverClient"

// signInToSentinels returns a function that go-redis calls with each new connection, to the master and to sentinels. go-redis
// itself reads the password of sentinels only once.
func signInToSentinels(read func() (user, password string, err error)) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		if strings.Contains(conn.String(), addressOfMaster) {
			return nil
		}
		user, password, err := provider(read)(ctx)
		switch {
		case err != nil:
			return err
		case user == "":
			return conn.Auth(ctx, password).Err()
		}
		return conn.AuthACL(ctx, user, password).Err()
	}
}

package lua

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrLibraryChanged says that functions with the names of this program have other code. The code of a function runs with the rights of the
// client that calls it, so a client that replaces a function gets these rights.
var ErrLibraryChanged = errors.New("another client of this Redis has changed the library of functions")

// errNoLibrary says that the server does not have the library.
var errNoLibrary = errors.New("the library of functions is not there")

// checkEvery is how often a client in use compares the library in Redis with its own.
const checkEvery = 45 * time.Second

// CheckLibrary compares the functions in Redis, on all masters of a cluster, with this program's: see [Library]. It returns an error that wraps
// [ErrLibraryChanged] if they differ, and nil if they are equal or absent.
func CheckLibrary(ctx context.Context, client redis.UniversalClient) error {
	check := func(ctx context.Context, node *redis.Client) error {
		if err := checkNode(ctx, node); !errors.Is(err, errNoLibrary) {
			return err
		}
		return nil
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, check)
	case *redis.Client:
		return check(ctx, c)
	default:
		return fmt.Errorf("a %T has no library of functions", client)
	}
}

// checkNode reads the library of one server. Without the library, a library with another name may have its functions.
func checkNode(ctx context.Context, node redis.Cmdable) error {
	own := theLibrary()
	found, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: own.name, WithCode: true}).Result()
	if err != nil {
		return err
	}
	if len(found) > 0 {
		if found[0].Code != own.text {
			return fmt.Errorf("%w: %s has other code", ErrLibraryChanged, own.name)
		}
		return nil
	}
	if found, err = node.FunctionList(ctx, redis.FunctionListQuery{}).Result(); err != nil {
		return err
	}
	names := map[any]bool{}
	for _, name := range own.functions {
		names[name] = true
	}
	for _, library := range found {
		for _, f := range library.Functions {
			if names[f.Name] && library.Name != own.name { // another process may have loaded it meanwhile
				return fmt.Errorf("%w: %s has the function %s", ErrLibraryChanged, library.Name, f.Name)
			}
		}
	}
	return errNoLibrary
}

// checkInTime starts a check if the last one is too old.
func (f *asFunctions) checkInTime(ctx context.Context) {
	now, due := time.Now().UnixNano(), f.checkAt.Load()
	if now < due || !f.checkAt.CompareAndSwap(due, now+int64(checkEvery)) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkEvery/3)
		defer cancel()
		if err := CheckLibrary(ctx, f.client); !f.isChanged(err) {
			f.reportUnchecked(err)
		}
	}()
}

// isChanged reports whether err says that the library in Redis differs from this program's. The client then stops using functions.
func (f *asFunctions) isChanged(err error) bool {
	if !errors.Is(err, ErrLibraryChanged) {
		return false
	}
	if !f.changed.Swap(true) {
		f.report(err)
	}
	return true
}

// reportUnchecked reports that Redis does not let this client check.
func (f *asFunctions) reportUnchecked(err error) {
	if redis.HasErrorPrefix(err, "NOPERM") && !f.unchecked.Swap(true) {
		f.report(fmt.Errorf("the library of functions in Redis cannot be checked: %w", err))
	}
}

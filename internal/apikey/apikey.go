// Package apikey holds the API keys: the rights of each, and its caller. The configuration names them, and the HTTP APIs obey them.
package apikey

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// Role is a kind of thing that a key may be used for.
type Role string

// The roles. None implies another, except RoleAdmin, which may do everything.
const (
	RoleEnqueue Role = "enqueue" // enqueue jobs into the key's buckets, read one by its id, cancel one
	RoleCheck   Role = "check"   // check limits: /v1/limits/{limit}/check
	RoleRead    Role = "read"    // every GET but the check, and /metrics
	RoleOperate Role = "operate" // changes that lose no job and change no setting: pause, resume, release, enable, drain, redrive, fire
	RoleAdmin   Role = "admin"   // everything, and change limits and pools
)

// Roles lists all roles.
func Roles() []Role { return []Role{RoleEnqueue, RoleCheck, RoleRead, RoleOperate, RoleAdmin} }

// AllBuckets in [Key.Buckets] stands for every bucket.
const AllBuckets = "*"

// Key is an API key. The secret itself is not kept anywhere.
type Key struct {
	Name string // names the key in logs and messages

	// Caller is the caller for which the key enqueues, and by which limits count it; "" means its name. Several keys may have the same caller.
	Caller string

	Roles []Role // roles of the key; without one it may do only what is open to all

	// SHA256 is the digest of the secret. While clients change to another secret there are two.
	SHA256 [][sha256.Size]byte

	// Buckets are the buckets that the key is for, or [AllBuckets]; empty: none. Limits, pools and metrics belong to no bucket: a key with the role sees
	// all of them, but only its own buckets of a pool. A change of a limit or a pool changes every bucket that names it, so it needs [AllBuckets].
	Buckets []string

	// Flows and Groups restrict RoleEnqueue: the key enqueues into these only, and reads and cancels no jobs of others. Empty means all. They do not
	// apply to a bucket without flows or groups.
	Flows, Groups []string

	sameBounds bool              // see SharesBounds
	shown      [sha256.Size]byte // the digest of the secret that was shown; zero: none was

	Tier string // which of the limits' tiers applies to the caller; "" none
}

// MayEnqueue reports whether the key may enqueue into the flow and the group of a job in a bucket.
func (k *Key) MayEnqueue(bucket *shaper.Bucket, group, flow string) bool {
	among := func(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	return (bucket.Flow == nil || among(k.Flows, flow)) && (bucket.Group == nil || among(k.Groups, group))
}

// Owner returns the caller of the key, "" without a key.
func (k *Key) Owner() string {
	if k == nil {
		return ""
	}
	return cmp.Or(k.Caller, k.Name)
}

// IsBound reports whether the key is for some flows or groups only.
func (k *Key) IsBound() bool { return len(k.Flows) > 0 || len(k.Groups) > 0 }

// SharesBounds reports whether all keys of its caller are for the same flows and groups.
func (k *Key) SharesBounds() bool { return k.sameBounds }

// Has reports whether the key has one of the roles.
func (k *Key) Has(roles []Role) bool {
	return slices.Contains(k.Roles, RoleAdmin) ||
		slices.ContainsFunc(roles, func(role Role) bool { return slices.Contains(k.Roles, role) })
}

// MayUse reports whether the key may use a bucket.
func (k *Key) MayUse(bucket string) bool {
	return slices.Contains(k.Buckets, AllBuckets) || slices.Contains(k.Buckets, bucket)
}

// SecretPrefix begins every secret, so scanners for leaked secrets recognise it.
const SecretPrefix = "tdk_"

// NewSecret generates the secret of a new key, of 32 random bytes, and its SHA-256 for [Key] and the configuration. Its caller shows the secret once and
// forgets it.
func NewSecret() (secret string, sum [32]byte) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = SecretPrefix + base64.RawURLEncoding.EncodeToString(random)
	return secret, sha256.Sum256([]byte(secret))
}

// Ring holds the keys of a server.
type Ring []Key

// NewRing records for each key whether others of its caller are for other flows.
func NewRing(keys []Key) Ring {
	ring := Ring(slices.Clone(keys))
	for i := range ring {
		k := &ring[i]
		k.sameBounds = !slices.ContainsFunc(keys, func(other Key) bool {
			return other.Owner() == k.Owner() && (!sameNames(other.Flows, k.Flows) || !sameNames(other.Groups, k.Groups))
		})
	}
	return ring
}

func sameNames(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

// Named returns the key of a name, or nil.
func (ring Ring) Named(name string) *Key {
	for i := range ring {
		if ring[i].Name == name {
			return &ring[i]
		}
	}
	return nil
}

// Find returns the key of a secret, or nil. It takes the same time for every key and for none.
func (ring Ring) Find(secret string) *Key {
	sum := sha256.Sum256([]byte(secret))
	at := -1
	for i := range ring {
		for _, known := range ring[i].SHA256 {
			at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], known[:]), i, at)
		}
	}
	if at < 0 {
		return nil
	}
	key := ring[at]
	key.shown = sum
	return &key
}

// Shown returns the key of a name, as the holder of the secret with a digest has it, or nil.
func (ring Ring) Shown(name string, digest [sha256.Size]byte) *Key {
	if key := ring.Named(name); key != nil && slices.Contains(key.SHA256, digest) {
		mine := *key
		mine.shown = digest
		return &mine
	}
	return nil
}

// Grants reports whether the ring still has a key, with the secret that was used, and all rights that it had then.
func (ring Ring) Grants(key *Key) bool {
	return slices.ContainsFunc(ring, func(now Key) bool {
		known := key.shown == [sha256.Size]byte{} || slices.Contains(now.SHA256, key.shown)
		return known && now.Name == key.Name && now.Owner() == key.Owner() && now.covers(key)
	})
}

// covers reports whether a key has all rights of another one.
func (k *Key) covers(other *Key) bool {
	bound := func(now, then []string) bool {
		return len(now) == 0 || len(then) > 0 && !slices.ContainsFunc(then, func(name string) bool { return !slices.Contains(now, name) })
	}
	return !slices.ContainsFunc(other.Roles, func(role Role) bool { return !k.Has([]Role{role}) }) &&
		!slices.ContainsFunc(other.Buckets, func(bucket string) bool { return !k.MayUse(bucket) }) &&
		bound(k.Flows, other.Flows) && bound(k.Groups, other.Groups)
}

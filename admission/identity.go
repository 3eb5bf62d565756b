package admission

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/textproto"
	"strings"
)

// Dimensions by which a limit may count separately.
const (
	PerCaller = "caller"  // the name of an API key, else the client's address
	PerIP     = "ip"      // the client's address
	PerFlow   = "flow"    // the flow of the job
	PerHeader = "header:" // and the name of a header of the request
)

// Identity is what is known of the caller. An empty field is not known. If a limit counts by such a field, its [Limit.OnMissing] decides.
type Identity struct {
	Caller string
	IP     string
	Flow   string
	Tier   string // which of the limits' tiers applies; "" the limit itself

	// Headers are the headers of the request by which limits count, under their
	// canonical names, such as "X-Tenant".
	Headers map[string]string
}

// KeyCaller makes the [Identity.Caller] of an API key's name. It never equals an AddrCaller.
func KeyCaller(name string) string { return "key:" + name }

// AddrCaller returns the [Identity.Caller] for an address as text, or "" for "".
func AddrCaller(name string) string {
	if name == "" {
		return ""
	}
	return "addr:" + name
}

// MissingIdentityError says that a limit counts by a dimension that is unknown for the caller, and is configured to refuse then.
type MissingIdentityError struct {
	Limit string
	Per   string // the dimension
}

func (e *MissingIdentityError) Error() string {
	what := "no " + e.Per + " is known"
	if header := HeaderOf(e.Per); header != "" {
		what = fmt.Sprintf("the request has no header %s", header)
	}
	return fmt.Sprintf("limit %q counts by %s, and %s: send it, or set the limit's on_missing to share or exempt", e.Limit, e.Per, what)
}

// dimension returns the value of a dimension.
func (id *Identity) dimension(per string) string {
	switch per {
	case PerCaller:
		return id.Caller
	case PerIP:
		return id.IP
	case PerFlow:
		return id.Flow
	}
	return id.Headers[HeaderOf(per)]
}

// HeaderOf returns the canonical name of the header that a dimension names, or "".
func HeaderOf(per string) string {
	name, ok := strings.CutPrefix(per, PerHeader)
	if !ok {
		return ""
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// Key returns the name under which the limit counts for id. It is a digest: an identity of any length and with any characters makes a key of 22 safe
// characters, and two identities do not share a key. A limit that counts everybody together has the key "all". Each tier of the limit counts
// separately.
//
// It is "" if the limit is not asked (OnMissing is [Exempt] and the identity lacks a field). It returns a [*MissingIdentityError] if the limit
// refuses.
func (l Limit) Key(id Identity) (string, error) {
	tier := id.Tier
	if _, ok := l.Tiers[tier]; !ok {
		tier = ""
	}
	if len(l.Per) == 0 && tier == "" {
		return "all", nil
	}
	var b strings.Builder
	for _, per := range l.Per {
		value := id.dimension(per)
		if value == "" {
			switch l.OnMissing {
			case Exempt:
				return "", nil
			case Share:
			default:
				return "", &MissingIdentityError{Limit: l.Name, Per: per}
			}
		}
		fmt.Fprintf(&b, "%d:%s%d:%s", len(per), per, len(value), value)
	}
	if tier != "" {
		fmt.Fprintf(&b, "tier%d:%s", len(tier), tier)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return base64.RawURLEncoding.EncodeToString(sum[:16]), nil
}

package httpapi

import (
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/session"
)

// SessionList are the logins of the console, the newest first.
type SessionList struct {
	Sessions []session.Session `json:"sessions"`
}

// SessionName names a session.
type SessionName struct {
	ID string `json:"id" in:"path"`
}

// SessionEnd says whether a session was ended.
type SessionEnd struct {
	ID string `json:"id"`

	// False if there was no such session, or none that the key may end.
	Changed bool `json:"changed"`
}

const ofSessions = "A key that is admin for all buckets has the sessions of every key, any other key has its own."

// The operations of sessions.
var (
	ListSessions = &Operation[struct{}, *SessionList]{
		ID: "listSessions", Method: "GET", Path: "/v1/sessions", Roles: []apikey.Role{apikey.RoleRead, apikey.RoleOperate},
		Commands: []string{"session list"}, Summary: "List who is logged in to the console",
		Description: ofSessions + " A session lasts 12 hours, and a key has 20 at most: one more ends its oldest.",
	}

	EndSession = &Operation[SessionName, *SessionEnd]{
		ID: "endSession", Method: "DELETE", Path: "/v1/sessions/{id}", Roles: []apikey.Role{apikey.RoleRead, apikey.RoleOperate},
		Commands: []string{"session end"}, Summary: "End a session of the console",
		Description: ofSessions + " Open pages of the session end within five seconds. Safe to repeat.",
	}
)

// sessionKeys are the keys whose sessions the caller of a request has.
func (o *ops) sessionKeys(r *http.Request) apikey.Ring {
	ring, key := o.access.ring(), keyOf(r)
	if o.local {
		ring = o.keys
	}
	if key == nil || key.Has(nil) && key.MayUse(apikey.AllBuckets) {
		return ring
	}
	return slices.DeleteFunc(slices.Clone(ring), func(k apikey.Key) bool { return k.Name != key.Name })
}

func (o *ops) listSessions(r *http.Request, _ *struct{}) (*SessionList, error) {
	if o.sessions == nil {
		return &SessionList{[]session.Session{}}, nil
	}
	list, err := o.sessions.List(r.Context(), o.sessionKeys(r))
	return &SessionList{list}, err
}

func (o *ops) endSession(r *http.Request, in *SessionName) (*SessionEnd, error) {
	if o.sessions == nil {
		return &SessionEnd{ID: in.ID}, nil
	}
	ended, err := o.sessions.EndByID(r.Context(), o.sessionKeys(r), in.ID)
	return &SessionEnd{in.ID, ended}, err
}

package console_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// desk is a dispatcher's API with the console in a bubble, where its Redis is too.
type desk struct {
	t       *testing.T
	handler *httpapi.Handler
}

func newDesk(t *testing.T, keys ...apikey.Key) *desk {
	t.Helper()
	mini := miniredis.NewMiniRedis()
	t.Cleanup(mini.Close)
	conn := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = conn.Close() })
	b := shaper.DefaultBucket()
	b.Name, b.Rate = "letters", admission.Rate{Count: 1, Per: time.Hour, Unit: admission.UnitRequests}
	op := must.Get(operator.New(operator.Config{Redis: conn, Buckets: []shaper.Bucket{b}, Timeout: patience}))(t)
	d := &desk{t: t}
	d.handler = httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Keys: keys, Pages: console.Pages(console.Config{Redis: conn}), Sessions: session.New(conn)})
	return d
}

// do is a request of the holder of a cookie, or of a key.
func (d *desk) do(method, target, body, cookie, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(d.t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w
}

// A stream of the console or of the API ends within five seconds after its login has ended, or its key has fewer rights.
func TestStreamsEndInFiveSeconds(t *testing.T) {
	t.Parallel()
	root := keyOf("root", []string{"*"}, apikey.RoleAdmin)
	reader := keyOf("reader", []string{"*"}, apikey.RoleRead)
	leaves := func(d *desk, _ string) { d.handler.SetKeys([]apikey.Key{root}) }
	narrows := func(d *desk, _ string) {
		d.handler.SetKeys([]apikey.Key{root, keyOf("reader", []string{"other"}, apikey.RoleRead)})
	}
	for name, c := range map[string]struct {
		isAPI bool
		end   func(d *desk, cookie string)
		goes  bool // on
	}{
		"logout": {end: func(d *desk, cookie string) { d.do(http.MethodPost, "/console/logout", "", cookie, "") }},
		"an operator ends the session": {end: func(d *desk, _ string) {
			id := regexp.MustCompile(`"id":"([0-9a-f-]+)"`).FindStringSubmatch(d.do(http.MethodGet, "/v1/sessions", "", "", "root").Body.String())
			if id == nil || d.do(http.MethodDelete, "/v1/sessions/"+id[1], "", "", "root").Code != http.StatusOK {
				d.t.Error("the session does not end:", id)
			}
		}},
		"the key leaves":           {end: leaves},
		"its rights are narrowed":  {end: narrows},
		"API: the key leaves":      {end: leaves, isAPI: true},
		"API: its rights narrowed": {end: narrows, isAPI: true},
		"nothing":                  {end: func(*desk, string) {}, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, root, reader)
				cookie, key, target := "", "reader", "/v1/stream?bucket=letters"
				if !c.isAPI {
					cookie, _, _ = strings.Cut(d.do(http.MethodPost, "/console/login", "key=reader", "", "").Header().Get("Set-Cookie"), ";")
					key, target = "", "/console/stream?bucket=letters"
				}
				ended := make(chan int)
				go func() { ended <- d.do(http.MethodGet, target, "", cookie, key).Code }()
				wait := func(within time.Duration) (status int) {
					select {
					case status = <-ended:
					case <-time.After(within):
					}
					return status
				}
				must.Be(t, wait(7*time.Second), 0, "it ended at once, with")
				c.end(d, cookie)
				status := wait(5 * time.Second)
				if status == 0 {
					d.handler.Drain()
					<-ended
				}
				must.Equal(t, (status == 0), c.goes, "after five seconds its status is %d", status)
			})
		})
	}
}

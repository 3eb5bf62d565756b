package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// An unset max_in_flight follows the rate and the time that a delivery may take.
func TestDefaultMaxInFlight(t *testing.T) {
	t.Parallel()
	const night = "[[buckets.calendar]]\nfrom = \"22:00\"\nto = \"06:00\"\nrate = \"1000/10s\"\n"
	const api = "worker = \"http\"\nhttp.base_url = \"https://api.example.com\"\n"
	const tasks = "worker = \"asynq\"\nasynq.queue = \"q\"\nasynq.task = \"t\"\n"
	for more, want := range map[string]int64{
		"rate = \"50/s\"\n":                                    750,
		"rate = \"50/s\"\n" + night:                            1500,
		"rate = \"300/s\"\n" + night:                           4500,
		"rate = \"100/m\"\n":                                   25,
		"rate = \"101/m\"\n":                                   26,
		"rate = \"1/s\"\n":                                     16,
		"rate = \"1/s\"\nburst = 17\n":                         17,
		"rate = \"50/s\"\nwebhook.timeout = \"100ms\"\n":       16,
		"rate = \"50/s\"\nmax_in_flight = 3\n":                 3,
		"rate = \"50/s\"\nmax_in_flight = 0\n":                 750,
		"rate = \"50/s\"\n" + api:                              1500,
		"rate = \"50/s\"\n" + api + "http.timeout = \"10s\"\n": 500,
		"rate = \"50/s\"\n" + tasks:                            256,
	} {
		c := mustLoad(t, "[[buckets]]\nname = \"b\"\n"+more)
		must.Equal(t, c.Buckets[0].EffectiveMaxInFlight(), want, "%q: in flight", more)
	}
}

// Nothing is shed unless the table is there; of a table that says some, the others have their defaults.
func TestShedding(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		"":                                    "{100 100 100}",
		"[buckets.shed]\n":                    "{70 80 90}",
		"shed = {}\n":                         "{70 80 90}",
		"shed.normal = 75\n":                  "{70 75 90}",
		"shed = { normal = 95, high = 95 }\n": "{70 95 95}",
	} {
		c := mustLoad(t, "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n"+more)
		must.Equal(t, fmt.Sprint(c.Buckets[0].Shed), want, "%q", more)
	}
}

// Calls to the embedded store wait longer than those to a Redis, unless they are given more.
func TestTimeoutOfTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 5 * time.Second,
		"[redis]\nurl = \"redis://127.0.0.1:6379\"\n":                      time.Second,
		"[redis]\nurl = \"embedded\"\ntimeout = \"9s\"\n":                  9 * time.Second,
		"[redis]\nurl = \"redis://127.0.0.1:6379\"\ntimeout = \"300ms\"\n": 300 * time.Millisecond,
	} {
		c := mustLoad(t, text)
		if got, call := c.Redis.Options(nil).Timeout, c.CallTimeout(); got != want || call != want*3/2 {
			t.Errorf("%q: %s for a command and %s for a call, want %s", text, got, call, want)
		}
	}
}

package httpapi_test

import (
	"strings"
	"testing"
)

// A mistyped name pauses and changes nothing: it is a 404 that says what to do, and ?create=true says that it is meant.
func TestUnknownFlowsAndGroupsByAPI(t *testing.T) {
	t.Parallel()
	flows, groups := flowStation(t), groupStation(t)
	for name, of := range map[string]struct {
		on                  *server
		one, settings, code string
	}{
		"flow":            {flows, "/v1/buckets/flowing/flow%s?flow=typo", "/v1/buckets/flowing/flow?flow=typo2", "unknown-flow"},
		"flow of a group": {groups, "/v1/buckets/grouped/flow%s?flow=2&group=c", "/v1/buckets/grouped/flow?flow=3&group=c", "unknown-flow"},
		"group":           {groups, "/v1/buckets/grouped/group%s?group=typo", "/v1/buckets/grouped/group?group=typo2", "unknown-group"},
	} {
		t.Run(name, func(t *testing.T) {
			one, pause := strings.Replace(of.one, "%s", "", 1), strings.Replace(of.one, "%s", "/pause", 1)
			for _, more := range []string{"", "&create=false", "&create="} {
				a := of.on.do("POST", pause+more, "").want(404, of.code)
				if detail, _ := a.json["detail"].(string); !strings.Contains(detail, "create=true") {
					t.Errorf("detail %q", detail)
				}
				of.on.do("PATCH", one+more, `{"weight":3}`).want(404, of.code)
			}
			a := of.on.do("GET", one, "").want(200, "")
			a.lacks("pause")
			if settings, _ := a.json["settings"].(map[string]any); len(settings) > 0 {
				t.Errorf("settings %v", settings)
			}
			if a := of.on.do("POST", pause+"&create=true", "").want(200, ""); a.json["pause"] == nil {
				t.Errorf("not paused: %s", a.text)
			}
			of.on.do("POST", pause, "").want(200, "") // it is there now
			of.on.do("PATCH", one, `{"weight":3}`).want(200, "")
			of.on.do("PUT", of.settings, `{"weight":3}`).want(200, "") // a PUT creates
		})
	}
}

package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

// A drain is shown with its author and its bounds, runs alone, and is stopped once.
func TestDrainByAPI(t *testing.T) {
	t.Parallel()
	_, ops, _ := station(t)
	const path = "/v1/buckets/small/drain"
	ops.do("GET", "/v1/buckets/small", "").want(200, "").lacks("drain")
	a := ops.do("POST", path, `{"rate":"5/m","max":7,"until_empty":true}`).want(200, "")
	drain := a.json["drain"].(map[string]any)
	if fmt.Sprint(drain["state"], drain["by"], drain["rate"], drain["max"], drain["departed"], drain["until_empty"]) !=
		"runninga program on the dispatcher's machine5/m7 0 true" {
		t.Errorf("drain %v", drain)
	}
	if a.json["hours"].(map[string]any)["open"] != true {
		t.Errorf("hours %v", a.json["hours"])
	}
	if detail := fmt.Sprint(ops.do("POST", path, "").want(409, "conflicting-state").json["detail"]); !strings.Contains(detail, "which still runs: stop that one first") {
		t.Errorf("detail %s", detail)
	}
	if a = ops.do("DELETE", path, "").want(200, ""); a.json["changed"] != true || a.json["drain"].(map[string]any)["state"] != "stopped" {
		t.Errorf("stopped: %v", a.json)
	}
	if a = ops.do("DELETE", path, "").want(200, ""); a.json["changed"] != false {
		t.Errorf("stopped again: %v", a.json)
	}
	ops.do("POST", path, "").want(200, "") // no body: until it is empty
	for body, field := range map[string]string{
		`{"rate":"fast"}`: "rate", `{"rate":"9 tokens/s"}`: "rate", `{"max":0}`: "max", `{"max":1.5}`: "max", `{"until_empty":1}`: "until_empty", `{"for":"1h"}`: "for", `[]`: "body",
	} {
		a := ops.do("POST", path, body).want(400, "invalid")
		if found := fmt.Sprint(a.json["errors"]); !strings.Contains(found, "field:"+field) {
			t.Errorf("%s: %v", body, found)
		}
	}
	ops.do("POST", "/v1/buckets/nobody/drain", "").want(404, "unknown-bucket")
	ops.do("DELETE", "/v1/buckets/nobody/drain", "").want(404, "unknown-bucket")
}

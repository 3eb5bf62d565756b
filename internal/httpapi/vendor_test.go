package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// vendor answers as six APIs do, each below a path of its own: it has the forms that their documentation gives.
type vendor struct {
	mu    sync.Mutex
	calls []string
	tries map[string]int
}

func newVendor() *vendor { return &vendor{tries: map[string]int{}} }

// reset forgets the calls, and returns them.
func (v *vendor) reset() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	calls := v.calls
	v.calls, v.tries = nil, map[string]int{}
	return calls
}

type object = map[string]any

var faultPattern = regexp.MustCompile(`fault-(\w+)`)

func (v *vendor) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/base/")
	api, path, _ := strings.Cut(path, "/")
	query := r.URL.Query()
	query.Del("fixed")
	body, _ := io.ReadAll(r.Body)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if api == "elastic" {
		h.Set("Content-Type", "application/vnd.elasticsearch+json;compatible-with=9")
		h.Set("X-Elastic-Product", "Elasticsearch")
	}
	text := string(body) + " " + path
	fault := faultPattern.FindStringSubmatch(text)
	v.mu.Lock()
	v.calls = append(v.calls, fmt.Sprint(r.Method, " ", api, "/", path, "?", query.Encode(), " ", len(body)))
	tries := 0
	if fault != nil {
		v.tries[api+fault[0]]++
		tries = v.tries[api+fault[0]]
	}
	v.mu.Unlock()
	if !strings.Contains(fmt.Sprint(r.Header), vendorKey) {
		v.answer(w, 401, errorOf(api, 401, "bad key"))
		return
	}
	if tries == 1 {
		v.fail(w, api, fault[1])
		return
	}
	form, _ := url.ParseQuery(string(body))
	var doc object
	_ = json.Unmarshal(body, &doc)
	switch api {
	case "stripe":
		v.stripe(w, r.Method, path, query, form, tries)
	case "github":
		v.github(w, r, path, query, doc)
	case "openai", "anthropic":
		v.models(w, api, r.Method, path, query, tries)
	case "slack":
		v.slack(w, path, form, tries)
	case "elastic":
		v.elastic(w, r.Method, path, tries)
	}
}

func (v *vendor) answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func errorOf(api string, status int, message string) object {
	switch api {
	case "github":
		return object{"message": message, "documentation_url": "https://docs.github.com"}
	case "slack":
		return object{"ok": false, "error": message}
	case "anthropic":
		return object{"type": "error", "error": object{"type": "not_found_error", "message": message}}
	case "elastic":
		return object{"error": object{"type": message, "reason": message}, "status": status}
	}
	return object{"error": object{"type": "invalid_request_error", "code": "resource_missing", "message": message}}
}

// fail fails a call as its fault is named.
func (v *vendor) fail(w http.ResponseWriter, api, fault string) {
	if fault == "cut" { // the connection, before the response
		panic(http.ErrAbortHandler)
	}
	status, _ := strconv.Atoi(fault)
	if status == 429 && api != "stripe" {
		w.Header().Set("Retry-After", "1")
	}
	v.answer(w, status, errorOf(api, status, "fails"))
}

// page returns ids of a list of five behind one, and whether there are more.
func page(prefix, after string) (list []object, more bool) {
	from := 0
	if after != "" {
		from, _ = strconv.Atoi(strings.TrimPrefix(after, prefix))
	}
	for n := from + 1; n <= min(from+2, 5); n++ {
		list = append(list, object{"id": prefix + strconv.Itoa(n), "object": "item"})
	}
	return list, from+2 < 5
}

func (v *vendor) stripe(w http.ResponseWriter, method, path string, query, form url.Values, tries int) {
	switch {
	case path == "v1/customers" && method == http.MethodGet:
		list, more := page("c", query.Get("starting_after"))
		v.answer(w, 200, object{"object": "list", "url": "/v1/customers", "data": list, "has_more": more})
	case path == "v1/charges":
		v.answer(w, 200, object{"id": "ch1", "object": "charge", "tries": tries})
	case strings.HasSuffix(path, "/missing"):
		v.answer(w, 404, errorOf("stripe", 404, "No such customer: 'missing'"))
	default:
		v.answer(w, 200, object{"id": "c1", "object": "customer", "email": form.Get("email"), "name": form.Get("name"), "deleted": method == http.MethodDelete})
	}
}

func (v *vendor) github(w http.ResponseWriter, r *http.Request, path string, query url.Values, doc object) {
	home := "http://" + r.Host + "/base/github/"
	switch {
	case path == "repos/acme/anvil/issues" && r.Method == http.MethodGet:
		n, _ := strconv.Atoi(query.Get("page"))
		n = max(n, 1)
		list, more := page("", strconv.Itoa(2*n-2))
		if more {
			w.Header().Set("Link", fmt.Sprintf(`<%[1]s%[2]s?per_page=2&page=%[3]d>; rel="next", <%[1]s%[2]s?per_page=2&page=3>; rel="last"`, home, path, n+1))
		}
		v.answer(w, 200, list)
	case path == "moved":
		w.Header().Set("Location", home+"repos/acme/anvil/issues/9")
		v.answer(w, 302, nil)
	case strings.HasSuffix(path, "/404"):
		v.answer(w, 404, errorOf("github", 404, "Not Found"))
	case r.Method == http.MethodDelete:
		w.WriteHeader(204)
	case r.Method == http.MethodPost:
		w.Header().Set("Location", home+"repos/acme/anvil/issues/8")
		v.answer(w, 201, object{"title": doc["title"]})
	default:
		v.answer(w, 200, object{"id": path[strings.LastIndexByte(path, '/')+1:], "title": doc["title"]})
	}
}

func (v *vendor) models(w http.ResponseWriter, api, method, path string, query url.Values, tries int) {
	switch {
	case strings.HasSuffix(path, "/missing"):
		v.answer(w, 404, errorOf(api, 404, "no such model"))
	case strings.HasSuffix(path, "chat/completions"):
		v.answer(w, 200, object{"id": "x", "choices": []object{{"message": object{"content": "hi"}}}, "tries": tries})
	case strings.HasSuffix(path, "messages"):
		v.answer(w, 200, object{"id": "x", "content": []object{{"type": "text", "text": "hi"}}, "tries": tries})
	case method == http.MethodDelete:
		v.answer(w, 200, object{"id": "m", "deleted": true})
	case query.Get("limit") != "":
		list, more := page("m", query.Get("after")+query.Get("after_id"))
		v.answer(w, 200, object{"object": "list", "data": list, "has_more": more, "last_id": list[len(list)-1]["id"]})
	default:
		v.answer(w, 200, object{"id": path[strings.LastIndexByte(path, '/')+1:]})
	}
}

func (v *vendor) slack(w http.ResponseWriter, path string, form url.Values, tries int) {
	switch {
	case path == "conversations.list":
		list, more := page("C", form.Get("cursor"))
		next := ""
		if more {
			next, _ = list[len(list)-1]["id"].(string)
		}
		v.answer(w, 200, object{"ok": true, "channels": list, "response_metadata": object{"next_cursor": next}})
	case form.Get("channel") == "missing":
		v.answer(w, 200, errorOf("slack", 200, "channel_not_found"))
	default:
		v.answer(w, 200, object{"ok": true, "message": object{"text": form.Get("text")}, "tries": tries})
	}
}

func (v *vendor) elastic(w http.ResponseWriter, method, path string, tries int) {
	id, _ := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
	switch {
	case id == "missing":
		v.answer(w, 404, errorOf("elastic", 404, "not_found"))
	case strings.HasSuffix(path, "_search"):
		v.answer(w, 200, object{"hits": object{"hits": []object{{"_id": "1"}, {"_id": "2"}}}})
	case method == http.MethodDelete:
		v.answer(w, 200, object{"result": "deleted"})
	case strings.Contains(path, "_update"):
		v.answer(w, 200, object{"result": "updated"})
	default:
		v.answer(w, 200, object{"_id": id, "found": true, "tries": tries})
	}
}

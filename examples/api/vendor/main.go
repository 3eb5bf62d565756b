// Program vendor plays the API of a vendor: it requires a token, and refuses more than 20 calls in a second or 100 in a minute.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const address = "127.0.0.1:9124"

func main() {
	v := &vendor{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", token)
	mux.HandleFunc("/v1/", v.call)
	mux.HandleFunc("GET /report", v.report)
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// token issues a token for client credentials (RFC 6749, 4.4).
func token(w http.ResponseWriter, r *http.Request) {
	if id, secret, _ := r.BasicAuth(); id != "us" || secret != "example" {
		http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"access_token":"the token","token_type":"Bearer","expires_in":60}`)
}

type vendor struct {
	mu      sync.Mutex
	times   []time.Time // of calls
	refused int
}

func (v *vendor) call(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer the token" {
		http.Error(w, `{"error":"no token"}`, http.StatusUnauthorized)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.within(now, time.Second) >= 20+2 || v.within(now, time.Minute) >= 100 { // 2: calls take different times to arrive
		v.refused++
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":"too many calls"}`, http.StatusTooManyRequests)
		return
	}
	v.times = append(v.times, now)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "path": strings.TrimPrefix(r.URL.Path, "/v1"), "call": len(v.times)})
}

// within counts the calls in the time before now.
func (v *vendor) within(now time.Time, window time.Duration) int {
	first, _ := slices.BinarySearchFunc(v.times, now.Add(-window), time.Time.Compare)
	return len(v.times) - first
}

// report writes how many calls arrived, and how many were refused.
func (v *vendor) report(w http.ResponseWriter, _ *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(w, "the vendor has answered %d calls, and refused %d\n", len(v.times), v.refused)
}

// Program receiver plays the receivers of 2,000 customers on one port: it checks the signature of each delivery, as a customer must.
//
//	receiver                    serves
//	receiver customers 2000     prints the customers, for `dispatcher flow import`
//	receiver secret NAME        prints the secret that customer NAME changes to
//	receiver wait N [what]      waits until it has counted N deliveries: verified, rotated
//	receiver repair             lets customer-2 work again
//	receiver tally              prints what it has counted
package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tundish-io/tundish/workers/webhook"
)

const address = "127.0.0.1:9123"

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		server := &http.Server{Addr: address, Handler: &receiver{tally: map[string]int{}}, ReadHeaderTimeout: 5 * time.Second}
		return server.ListenAndServe()
	case args[0] == "customers" && len(args) == 2:
		return customers(args[1])
	case args[0] == "secret" && len(args) == 2:
		fmt.Println(secretOf(args[1], "new"))
		return nil
	case args[0] == "wait" && len(args) >= 2:
		return wait(args[1], append(args, "verified")[2])
	case args[0] == "repair", args[0] == "tally":
		text, err := ask(args[0])
		fmt.Print(text)
		return err
	}
	return fmt.Errorf("no such command: %s", strings.Join(args, " "))
}

// secretOf returns the secret of a customer. Real secrets come from a random source; these are derived, so that two programs know them.
func secretOf(customer, version string) string {
	sum := sha256.Sum256([]byte("an example, " + customer + ", " + version))
	return "whsec_" + base64.StdEncoding.EncodeToString(sum[:])
}

// customers prints each customer with its URL and its secret, one on a line.
func customers(number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(os.Stdout)
	for i := range n {
		name := fmt.Sprintf("customer-%d", i+1)
		err := lines.Encode(map[string]any{"flow": name, "url": "http://" + address + "/" + name, "secrets": []string{secretOf(name, "old")}})
		if err != nil {
			return err
		}
	}
	return nil
}

type receiver struct {
	mu       sync.Mutex
	tally    map[string]int
	repaired bool
}

func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch name {
	case "tally":
		v.mu.Lock()
		defer v.mu.Unlock()
		_ = json.NewEncoder(w).Encode(v.tally)
	case "repair":
		v.mu.Lock()
		defer v.mu.Unlock()
		v.repaired = true
		fmt.Fprintln(w, "customer-2 works again")
	default:
		outcome, status := v.deliver(name, r)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.tally[outcome]++
		if outcome == "rotated" {
			v.tally["verified"]++
		}
		w.WriteHeader(status)
	}
}

// deliver handles a delivery as a customer does.
func (v *receiver) deliver(name string, r *http.Request) (outcome string, status int) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return "cut off", http.StatusBadRequest
	}
	seconds, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	received := webhook.Received{ID: r.Header.Get("webhook-id"), Timestamp: time.Unix(seconds, 0), Signature: r.Header.Get("webhook-signature"), Body: body}
	secret, err := webhook.Verify([]string{secretOf(name, "new"), secretOf(name, "old")}, received, time.Now(), 5*time.Minute)
	if err != nil {
		log.Printf("%s: %v", name, err)
		return "not verified", http.StatusUnauthorized
	}
	v.mu.Lock()
	repaired := v.repaired
	v.mu.Unlock()
	switch {
	case name == "customer-1": // a slow one
		time.Sleep(time.Second)
	case name == "customer-2" && !repaired: // a dead one
		return "failed", http.StatusInternalServerError
	case name == "customer-3": // one that wants no more deliveries
		return "gone", http.StatusGone
	}
	if secret == 0 {
		return "rotated", http.StatusNoContent
	}
	return "verified", http.StatusNoContent
}

// wait waits until enough was counted, for a minute at most.
func wait(number, what string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		text, err := ask("tally")
		if err != nil {
			return err
		}
		tally := map[string]int{}
		if err := json.Unmarshal([]byte(text), &tally); err != nil {
			return err
		}
		if tally[what] >= n {
			fmt.Printf("the receiver has %d %s\n", tally[what], what)
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after a minute the receiver has %d %s, and not %d: %s", tally[what], what, n, text)
		}
	}
}

// ask calls the running receiver.
func ask(path string) (string, error) {
	resp, err := http.Get("http://" + address + "/" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

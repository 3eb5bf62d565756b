// Program providers plays the APIs of OpenAI and Anthropic, so that the example needs no key: as the real ones do, each refuses calls above its limits
// of requests and tokens.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
)

// The APIs are below /openai and /anthropic.
const address = "127.0.0.1:9127"

func main() {
	mux := http.NewServeMux()
	for _, api := range []llmprovider.API{llmprovider.OpenAI, llmprovider.Anthropic} {
		provider := llmprovider.New(llmprovider.Settings{
			API: api, CallTime: time.Second, UsedFrom: .2, UsedTo: 1,
			Limits: []llmprovider.Limit{
				{Unit: llmprovider.Requests, Amount: 4, Window: time.Second},
				{Unit: llmprovider.Tokens, Amount: 90_000, Window: time.Minute},
			},
		})
		mux.Handle("/"+string(api)+"/", provider)
		mux.HandleFunc("GET /"+string(api)+"/report", func(w http.ResponseWriter, _ *http.Request) {
			calls := provider.Log()
			refused := len(calls.Refused())
			fmt.Fprintf(w, "%s has answered %d calls, and refused %d; at most %d tokens in a minute\n",
				api, len(calls)-refused, refused, calls.Most(llmprovider.Tokens, time.Minute))
		})
	}
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

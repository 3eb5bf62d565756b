// Package outgoing sends requests of jobs over HTTP, for the workers that do so.
//
// One permit is one request. This package never sends a second one: it follows no redirect and repeats no request. It makes the
// connection ready, asks for the permit, and then sends the first byte. If the permit is void by then, the connection stays open for
// the next request.
//
// Connections go only to addresses of the public internet, unless others are allowed ([workers.Guard]). No proxy is used unless the
// settings name one. Of the answer, a bounded part is read in bounded time.
package outgoing

// Package outgoing sends requests of jobs over HTTP, for the workers that do so.
//
// One permit is one request. This package follows no redirect, and repeats a request only where the receiver reports that it did not process it
// (HTTP/2), while the permit is good. It makes the connection ready, asks for the permit, and then sends the first byte. If the permit is void by then,
// the connection stays open for the next request.
//
// A connection that the receiver retires, that is silent in spite of a PING, or that reached its maximum age takes no new request. Its requests end on
// it. New connections spread over the addresses of the receiver.
//
// Connections go only to addresses of the public internet, unless others are allowed ([workers.Guard]). No proxy is used unless the settings name one.
// It reads a bounded part of the response in bounded time.
package outgoing

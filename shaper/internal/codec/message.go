package codec

import "strings"

// Messages to a process that waits for jobs (see the answers of package producer) are "bucket id": the job has ended, and its result is stored. A
// text after that is the ticket of a job that the process sends itself.

// TicketMessage returns the message of a ticket.
func TicketMessage(bucket, id, ticket string) string { return bucket + " " + id + " " + ticket }

// ReadMessage returns the job that a message names, as "bucket id", and its ticket, "" if there is none.
func ReadMessage(text string) (job, ticket string) {
	bucket, rest, _ := strings.Cut(text, " ")
	id, ticket, _ := strings.Cut(rest, " ")
	return bucket + " " + id, ticket
}

package httpapi

import (
	"fmt"
	"net/http"
)

// smallAnswer is the largest response, in bytes, that is not counted: the bound of requests bounds small responses.
const smallAnswer = 4 << 10

// takeAnswer reserves memory for a response of n bytes.
func (u *usage) takeAnswer(n int64) bool { return n <= smallAnswer || u.takeRest(n) }

// answer writes the response to a request. A large response counts as a body does, until the client has read it. Without memory for it, answer writes
// nothing and returns a fault.
func (u *usage) answer(w http.ResponseWriter, status int, body any) *fault {
	text, err := encode(body)
	if err != nil {
		unwritable(err).write(w)
		return nil
	}
	if !u.takeAnswer(int64(len(text))) {
		return u.noMemory(fmt.Sprintf("no memory for an answer of %d bytes: ", len(text)))
	}
	writeEncoded(w, status, typeJSON, text)
	return nil
}

package lua

import "math/bits"

// EarlierReset is what the reset of a token_bucket was before the last micro
// micro-tokens were spent of it at that same instant, given the reset and the slack
// that allow answers after that, and the rule's a and b. All are 0 or more, and a
// is 1 or more.
func EarlierReset(reset, slack, micro, a, b int64) int64 {
	high, low := bits.Mul64(uint64(micro), uint64(b))
	low, carry := bits.Add64(low, uint64(slack), 0)
	quotient, _ := bits.Div64(high+carry, low, uint64(a)) // reset at most
	return reset - int64(quotient)
}

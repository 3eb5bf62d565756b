package lua

import "math/bits"

// EarlierReset computes the reset of a token_bucket before its last micro micro-tokens were spent, at the same instant. reset and slack are the
// reply of allow after that, a and b the numbers of the rule. All are 0 or more, and a is 1 or more.
func EarlierReset(reset, slack, micro, a, b int64) int64 {
	high, low := bits.Mul64(uint64(micro), uint64(b))
	low, carry := bits.Add64(low, uint64(slack), 0)
	quotient, _ := bits.Div64(high+carry, low, uint64(a)) // reset at most
	return reset - int64(quotient)
}

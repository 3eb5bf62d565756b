package lua

import "fmt"

// Integers decodes a reply that is a flat array of integers.
func Integers(reply any) ([]int64, error) {
	items, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("reply is a %T, want an array", reply)
	}
	numbers := make([]int64, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok {
			return nil, fmt.Errorf("reply[%d] is a %T, want an integer", i, item)
		}
		numbers[i] = n
	}
	return numbers, nil
}

// IntegersFor is [Integers] for a reply with one integer for each of n questions.
func IntegersFor(reply any, n int) ([]int64, error) {
	numbers, err := Integers(reply)
	if err == nil && len(numbers) != n {
		return nil, fmt.Errorf("reply has %d items, want %d", len(numbers), n)
	}
	return numbers, err
}

// Reader reads a flat array of integers and strings from the front. It stops at the first fault, which [Reader.Err] returns.
type Reader struct {
	items []any
	at    int
	err   error
}

// NewReader returns a reader of a script's reply.
func NewReader(reply any) *Reader {
	items, ok := reply.([]any)
	r := &Reader{items: items}
	if !ok {
		r.err = fmt.Errorf("reply is a %T, want an array", reply)
	}
	return r
}

// Int reads the next item as an integer.
func (r *Reader) Int() int64 { return next[int64](r) }

// Text reads the next item as a string.
func (r *Reader) Text() string { return next[string](r) }

// Left is the number of items not read yet; 0 after a fault.
func (r *Reader) Left() int {
	if r.err != nil {
		return 0
	}
	return len(r.items) - r.at
}

// Err is the first fault, or nil.
func (r *Reader) Err() error { return r.err }

func next[T int64 | string](r *Reader) T {
	var zero T
	if r.err != nil {
		return zero
	}
	if r.at >= len(r.items) {
		r.err = fmt.Errorf("reply has %d items, one more is wanted", len(r.items))
		return zero
	}
	value, ok := r.items[r.at].(T)
	if !ok {
		r.err = fmt.Errorf("reply[%d] is a %T, want a %T", r.at, r.items[r.at], zero)
		return zero
	}
	r.at++
	return value
}

// Answer is a reply of named values: see lua/lib/named_reply.lua. A missing value reads as zero. Like Reader, it keeps the first fault: a value of
// another type than the caller reads.
type Answer struct {
	values map[string]any
	err    error
}

// ReadAnswer reads a reply of names and values.
func ReadAnswer(reply any) (*Answer, error) {
	items, ok := reply.([]any)
	if !ok || len(items)%2 != 0 {
		return nil, fmt.Errorf("reply is a %T of %d items, want names and values", reply, len(items))
	}
	a := &Answer{values: make(map[string]any, len(items)/2)}
	for i := 0; i < len(items); i += 2 {
		name, ok := items[i].(string)
		if !ok {
			return nil, fmt.Errorf("reply[%d] is a %T, want a name", i, items[i])
		}
		a.values[name] = items[i+1]
	}
	return a, nil
}

// Int returns a value that is a number.
func (a *Answer) Int(name string) int64 { return valueOf[int64](a, name) }

// Text returns a value that is a text.
func (a *Answer) Text(name string) string { return valueOf[string](a, name) }

// List reads a value that is a list.
func (a *Answer) List(name string) *Reader {
	return NewReader(append([]any{}, valueOf[[]any](a, name)...))
}

// Err is the first fault, or nil.
func (a *Answer) Err() error { return a.err }

func valueOf[T any](a *Answer, name string) (value T) {
	found, there := a.values[name]
	if !there {
		return value
	}
	value, ok := found.(T)
	if !ok && a.err == nil {
		a.err = fmt.Errorf("reply has a %T as %s, want a %T", found, name, value)
	}
	return value
}

//go:build !linux

package main

import "errors"

// onOneProcessor works on Linux only.
func onOneProcessor(int) (undo func(), err error) {
	return nil, errors.New("only Linux lets a program choose its processor")
}

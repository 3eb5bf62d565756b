package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// onOneProcessor makes this process and Redis share one CPU until undo. The time of a call is then the work of both, without the time in which an idle
// CPU wakes. That time differs from run to run by more than the work of two limiters.
func onOneProcessor(redisPID int) (undo func(), err error) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("ask for the processors of this process: %w", err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	undo = func() { _ = runOn(&all, os.Getpid(), redisPID) }
	if err := runOn(&one, os.Getpid(), redisPID); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// runOn restricts all threads of the processes to the CPUs of a set, also threads that they start later.
func runOn(set *unix.CPUSet, pids ...int) error {
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("read the threads of process %d: %w", pid, err)
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(id, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set the processor of thread %d: %w", id, err)
			}
		}
	}
	return nil
}

package main

import (
	"errors"
	"io"
	"time"
)

// interruptible is a writer whose Write returns soon after an interruption even if nobody reads. What was being written
// then is left behind, since a write cannot be taken back; the program ends anyway.
type interruptible struct {
	w           io.Writer
	interrupted <-chan struct{}
}

// lastWrite is how long a write may take after the interruption.
const lastWrite = time.Second

var errInterrupted = errors.New("interrupted while nobody reads")

func (i *interruptible) Write(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := i.w.Write(p)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-i.interrupted:
	}
	late := time.NewTimer(lastWrite)
	defer late.Stop()
	select {
	case r := <-done:
		return r.n, r.err
	case <-late.C:
		return 0, errInterrupted
	}
}

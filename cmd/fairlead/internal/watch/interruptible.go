package watch

import (
	"errors"
	"io"
	"time"
)

// interruptible is a writer whose Write returns soon after an interruption, even if the reader has stopped. It abandons
// a pending write, which cannot be cancelled; the program ends anyway.
type interruptible struct {
	w           io.Writer
	interrupted <-chan struct{}
}

// lastWrite bounds a write after the interruption.
const lastWrite = time.Second

var errInterrupted = errors.New("interrupted")

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

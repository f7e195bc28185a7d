package watch

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestInterruptible: a write waits for a slow reader, but at most lastWrite after an interrupt.
func TestInterruptible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		interrupted := make(chan struct{})
		w := &interruptible{writer, interrupted}
		time.AfterFunc(time.Hour, func() { _, _ = io.ReadFull(reader, make([]byte, 2)) })
		if n, err := w.Write([]byte("ok")); n != 2 || err != nil {
			t.Errorf("to a slow reader: %d, %v", n, err)
		}
		time.AfterFunc(time.Minute, func() { close(interrupted) })
		begin := time.Now()
		_, err := w.Write([]byte("lost"))
		if took := time.Since(begin); !errors.Is(err, errInterrupted) || took != time.Minute+lastWrite {
			t.Errorf("to a stopped reader: %v after %v", err, took)
		}
		_ = reader.Close() // ends the abandoned write
	})
}

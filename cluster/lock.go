package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fileLock is an advisory lock on a file (flock). The kernel releases it when the process ends, so a killed holder
// needs no cleanup. The pid in the file is used only in messages.
type fileLock struct{ f *os.File }

// tryLock acquires the lock. Otherwise it returns an error that matches syscall.EWOULDBLOCK, and the holder's pid. It
// follows no symbolic link, since it overwrites the content of the file.
func tryLock(path string) (l *fileLock, holder int, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot open lock file: %w", err)
	}
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		b, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		_ = f.Close()
		return nil, pid, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	// The pid is for messages only: a full disk must not prevent a start.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return &fileLock{f}, 0, nil
}

// waitLock acquires the lock as soon as it is free. While it waits, it repeatedly calls waiting with the holder's pid.
func waitLock(ctx context.Context, path string, waiting func(pid int)) (*fileLock, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		l, pid, err := tryLock(path)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return l, err
		}
		waiting(pid)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (l *fileLock) unlock() {
	_ = l.f.Truncate(0)
	// Closing is not enough: a process that another goroutine is starting shares the file until its exec.
	_ = flock(l.f, syscall.LOCK_UN)
	_ = l.f.Close()
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

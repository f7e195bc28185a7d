package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ended is why a child was ended before it was through. It stands in the table in place of its values.
type ended string

func (e ended) Error() string { return string(e) }

// guard ends a child before it takes the last memory of the machine: a machine that swaps or kills measures nothing,
// and takes the results of hours with it. It returns when ctx is done.
func guard(ctx context.Context, end context.CancelCauseFunc, pid int, reserve int64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !endIfShort(end, pid, reserve) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func endIfShort(end context.CancelCauseFunc, pid int, reserve int64) bool {
	free := proc("/proc/meminfo", "MemAvailable:")
	if free == 0 || free >= reserve {
		return false
	}
	end(ended(fmt.Sprintf("out of memory at %.1f GB", float64(proc(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:"))/1e9)))
	return true
}

// reserveOf is what the guard keeps free of this machine: 2 GiB, but at most an eighth of it.
func reserveOf() int64 { return min(2<<30, proc("/proc/meminfo", "MemTotal:")/8) }

// proc returns a number of kB in a file of /proc, in bytes; 0 if it cannot be read.
func proc(path, field string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := bytes.Fields(s.Bytes()); len(fields) > 1 && string(fields[0]) == field {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}

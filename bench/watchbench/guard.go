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

// ended is the reason why a child was ended early. The table shows it instead of values.
type ended string

func (e ended) Error() string { return string(e) }

// guard ends a child before the machine runs out of memory: swapping distorts the measurement, and the OOM killer
// could end this process and lose hours of results. guard returns when it has ended the child, or when ctx is done.
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

// reserveOf returns the memory that the guard keeps free: 2 GiB, but at most an eighth of the machine's memory.
func reserveOf() int64 { return min(2<<30, proc("/proc/meminfo", "MemTotal:")/8) }

// proc reads a field in kB from a file of /proc and returns it in bytes. It returns 0 on error.
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

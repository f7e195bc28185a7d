package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// memory returns the resident memory of this process, and its peak since resetPeak, in bytes.
func memory() (resident, peak int64) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := bytes.Fields(s.Bytes())
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
		switch string(fields[0]) {
		case "VmRSS:":
			resident = n << 10
		case "VmHWM:":
			peak = n << 10
		}
	}
	return resident, peak
}

// resetPeak begins a new measurement of the peak; see proc(5), clear_refs.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// atRest returns the resident memory when everything that can be given back was given back. Not for the time in which a peak is measured.
func atRest() int64 {
	for range 2 { // weak pointers and finalizers need two
		runtime.GC()
		debug.FreeOSMemory()
	}
	r, _ := memory()
	return r
}

// cpu returns the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quantile of unsorted values, which it sorts.
func quantile(v []time.Duration, q float64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

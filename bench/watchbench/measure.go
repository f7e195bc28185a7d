package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
)

// memory returns the resident memory of this process and its peak since resetPeak, in bytes.
func memory() (resident, peak int64) {
	return proc("/proc/self/status", "VmRSS:"), proc("/proc/self/status", "VmHWM:")
}

// resetPeak resets the peak of the resident memory; see clear_refs in proc(5).
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// atRest returns the resident memory after free memory was returned to the system. It must not be called while a peak
// is measured.
func atRest() int64 {
	for range 2 { // weak pointers and finalizers need two collections
		runtime.GC()
		debug.FreeOSMemory()
	}
	r, _ := memory()
	return r
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quantile returns the q-quantile of v. It sorts v.
func quantile(v []time.Duration, q float64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// heapUse is what a process has allocated since its start.
type heapUse struct{ bytes, allocations, collections uint64 }

func heapUsed() heapUse {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return heapUse{bytes: s.TotalAlloc, allocations: s.Mallocs, collections: uint64(s.NumGC)}
}

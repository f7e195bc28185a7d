// Package goroutine finds the stacks of goroutines in a dump, for reports of code that does not return.
//
//	id := goroutine.Current()                  // in the goroutine that runs the code
//	log.Error("stuck", "stack", goroutine.Stacks(id)) // in any other
package goroutine

import (
	"runtime"
	"strings"
)

// maxDump bounds the dump of all goroutines in bytes. Stacks beyond it are not found.
const maxDump = 64 << 20

// ID is the name of a goroutine in dumps: "goroutine 12 ". The process does not reuse the number.
type ID string

// Current returns the ID of the calling goroutine.
func Current() ID {
	var buf [40]byte
	header, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), "[")
	return ID(header)
}

// Stacks returns the stacks of the running goroutines with these IDs, separated by empty lines. It stops the world to
// dump all goroutines, so it is for error reports only. Without IDs it returns at once.
func Stacks(ids ...ID) string {
	if len(ids) == 0 {
		return ""
	}
	var found []string
	for one := range strings.SplitSeq(dump(), "\n\n") {
		for _, id := range ids {
			if strings.HasPrefix(one, string(id)) {
				found = append(found, strings.TrimSpace(one))
			}
		}
	}
	return strings.Join(found, "\n\n")
}

// dump returns the stacks of all goroutines.
func dump() string {
	for size := 1 << 16; ; size *= 4 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= maxDump {
			return string(buf[:n])
		}
	}
}

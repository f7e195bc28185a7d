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

// Bubble returns the stacks of all other goroutines in the bubble of testing/synctest that the caller runs in.
func Bubble() []string {
	const label = ", synctest bubble "
	own := string(Current())
	var others []string
	// Goroutines of package testing, which wait for the caller.
	const root, test = "internal/synctest.Run(", "testing/synctest.testingSynctestTest("
	bubble := ""
	stacks := strings.Split(dump(), "\n\n")
	for _, one := range stacks {
		if header, _, _ := strings.Cut(one, "]"); strings.HasPrefix(one, own) {
			_, bubble, _ = strings.Cut(header, label)
		}
	}
	for _, one := range stacks {
		header, _, _ := strings.Cut(one, "]")
		_, of, ok := strings.Cut(header, label)
		if ok && of == bubble && !strings.HasPrefix(one, own) && !strings.Contains(one, root) &&
			!strings.Contains(one, test) {
			others = append(others, strings.TrimSpace(one))
		}
	}
	return others
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

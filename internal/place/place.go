// Package place finds where an object was declared in the source code.
package place

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Outside returns file:line of the first caller outside the given packages, such as
// "github.com/fairlead-io/fairlead/reconcile". Their tests count as outside. It keeps the last two elements of the file
// path, which omits the directory of the build machine.
func Outside(packages ...string) string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		inside := slices.ContainsFunc(packages, func(pkg string) bool { return strings.HasPrefix(frame.Function, pkg+".") })
		if !inside || strings.HasSuffix(frame.File, "_test.go") {
			parts := strings.Split(frame.File, "/")
			return fmt.Sprintf("%s:%d", strings.Join(parts[max(0, len(parts)-2):], "/"), frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

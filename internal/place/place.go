// Package place tells where something was declared.
package place

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Outside returns file:line of the first caller outside of some packages, such as
// "github.com/fairlead-io/fairlead/reconcile"; their tests count as outside. Of the path of the file the last two
// elements are kept: enough to find it, and not the path of the machine it was built on.
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

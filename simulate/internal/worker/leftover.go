package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// linger is the virtual time in which goroutines of the subject may end after its context has ended.
const linger = time.Minute

// leftovers are goroutines that have not ended with their subject, by the functions that started them.
type leftovers map[string]int

// leftBehind returns the goroutines of the bubble of its caller, which has done all its work.
func leftBehind() leftovers {
	synctest.Wait()
	if len(goroutine.Bubble()) == 0 {
		return nil
	}
	<-time.After(linger)
	synctest.Wait()
	left := leftovers{}
	for _, stack := range goroutine.Bubble() {
		_, by, _ := strings.Cut(stack, "created by ")
		by, _, _ = strings.Cut(by, "\n")
		by, _, _ = strings.Cut(by, " in goroutine ")
		left[by]++
	}
	return left
}

func (l leftovers) String() string {
	var by []string
	for name, n := range l {
		by = append(by, fmt.Sprintf("%d of %s", n, name))
	}
	slices.Sort(by)
	const text = "the subject leaves goroutines behind when its context ends, so that each schedule takes a process of " +
		"its own: "
	return text + strings.Join(by, ", ")
}

package share

import (
	"fmt"
	"slices"
	"testing"
)

// TestQueue: a namespace that floods a queue neither delays nor displaces the names of another one.
func TestQueue(t *testing.T) {
	t.Parallel()
	var q Queue
	const most = 10
	put := func(namespace, name string) (dropped string) {
		if q.Len() >= most {
			if dropped = q.DropFor(namespace); dropped == "" {
				return name
			}
		}
		q.Push(namespace, name)
		return dropped
	}
	for i := range most {
		put("hostile", fmt.Sprint("h", i))
	}
	if got := put("hostile", "late"); got != "late" {
		t.Errorf("dropped %q: what is too much of one namespace is its newest", got)
	}
	if got := put("victim", "v0"); got != "h9" {
		t.Errorf("dropped %q for another namespace", got)
	}
	if got := put("victim", "v1"); got != "h8" {
		t.Errorf("dropped %q for another namespace", got)
	}
	var order []string
	for q.Len() > 0 {
		order = append(order, q.Pop())
	}
	if want := []string{"h0", "v0", "h1", "v1", "h2", "h3", "h4", "h5", "h6", "h7"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if len(q.queue.lanes)+q.queue.turns.Len() != 0 {
		t.Errorf("left over: %+v", q)
	}
}

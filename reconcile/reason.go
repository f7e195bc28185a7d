package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/store"
)

// ReasonType says why an object is reconciled.
type ReasonType string

// The types of reasons.
const (
	Initial   ReasonType = "Initial"   // it was there when the controller started, or its slot came
	Added     ReasonType = "Added"     // an object appeared
	Modified  ReasonType = "Modified"  // an object changed
	Deleted   ReasonType = "Deleted"   // an object is gone
	Interval  ReasonType = "Interval"  // the maximum interval has passed
	Scheduled ReasonType = "Scheduled" // an earlier reconciliation asked for it with After
	Retried   ReasonType = "Retried"   // the one before failed
	Triggered ReasonType = "Triggered" // somebody called Trigger
	Leading   ReasonType = "Leading"   // this process has become the leader again
)

// Reason is one event that led to a reconciliation.
type Reason struct {
	Type    ReasonType
	Source  string // name of the watch, such as "Gateway" or "Secret"; what was given to Trigger
	Key     Key    // of the object that the event is about
	Version string // of that object
}

// String is the reason as it is logged.
func (r Reason) String() string {
	if r.Source == "" {
		return string(r.Type)
	}
	return fmt.Sprintf("%s %s %s", r.Type, r.Source, r.Key)
}

// Info is what a reconciler can ask about its call.
type Info struct {
	Controller string
	Key        Key
	Reasons    []Reason // oldest first; of very many the first ones
	Dropped    int      // reasons beyond those
	Attempt    int      // 1 for the first try since the last success
	LastError  error    // of the attempt before
	Finalizer  string   // of this controller; "" if it has none
}

type infoKey struct{}

// InfoFrom returns what is known about the reconciliation that has this context; the zero Info outside of one.
func InfoFrom(ctx context.Context) Info {
	i, _ := ctx.Value(infoKey{}).(Info)
	i.Reasons = slices.Clone(i.Reasons)
	return i
}

// ReasonsFrom returns why the reconciliation that has this context is made.
func ReasonsFrom(ctx context.Context) []Reason { return InfoFrom(ctx).Reasons }

// maxReasons bounds the reasons that are listed for each object.
const maxReasons = 16

// reasons are those of one object that were not handled yet.
type reasons struct {
	list    []Reason
	dropped int
}

func (rs *reasons) empty() bool { return len(rs.list) == 0 }

// add notes a reason. A later one about the same object replaces the earlier one.
func (rs *reasons) add(r Reason) {
	for i := range rs.list {
		if o := &rs.list[i]; o.Type == r.Type && o.Source == r.Source && o.Key == r.Key {
			o.Version = r.Version
			return
		}
	}
	if len(rs.list) >= maxReasons {
		rs.dropped++
		return
	}
	rs.list = append(rs.list, r)
}

// before puts reasons that were not handled after all in front.
func (rs *reasons) before(old reasons) {
	now := rs.list
	rs.list, rs.dropped = slices.Clip(old.list), rs.dropped+old.dropped
	for _, r := range now {
		rs.add(r)
	}
}

func reasonOf(e store.Event, source string) Reason {
	r := Reason{Source: source, Key: e.Key}
	if e.Object != nil {
		r.Version = e.Object.Version()
	}
	switch {
	case e.Initial:
		r.Type = Initial
	case e.Type == store.Added:
		r.Type = Added
	case e.Type == store.Deleted:
		r.Type = Deleted
	case e.Type == store.Sync:
		r.Type = Interval
	default:
		r.Type = Modified
	}
	return r
}

package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/store"
)

// ReasonType is the type of a reason to reconcile an object.
type ReasonType string

// The types of reasons.
const (
	Initial   ReasonType = "Initial"   // the object existed when the controller started or gained its slot
	Added     ReasonType = "Added"     // an object appeared
	Modified  ReasonType = "Modified"  // an object changed
	Deleted   ReasonType = "Deleted"   // an object was deleted
	Interval  ReasonType = "Interval"  // the maximum interval has passed
	Scheduled ReasonType = "Scheduled" // an earlier reconciliation returned After
	Retried   ReasonType = "Retried"   // the previous reconciliation failed
	Triggered ReasonType = "Triggered" // Trigger was called
	Leading   ReasonType = "Leading"   // this process became the leader again
)

// Reason is one event that led to a reconciliation.
type Reason struct {
	Type    ReasonType
	Source  string // name of the watch, such as "Gateway" or "Secret", or the source given to Trigger
	Key     Key    // of the object that the event is about
	Version string // of that object
}

// String returns the reason in the form that logs show.
func (r Reason) String() string {
	if r.Source == "" {
		return string(r.Type)
	}
	return fmt.Sprintf("%s %s %s", r.Type, r.Source, r.Key)
}

// Info describes a call to a reconciler.
type Info struct {
	Controller string
	Key        Key
	Reasons    []Reason // oldest first; at most 16
	Dropped    int      // number of further reasons
	Attempt    int      // 1 for the first attempt since the last success
	LastError  error    // of the previous attempt
	Finalizer  string   // of this controller; "" if it has none
}

type infoKey struct{}

// InfoFrom returns the Info of the reconciliation that ctx belongs to. It returns the zero Info for other contexts.
func InfoFrom(ctx context.Context) Info {
	i, _ := ctx.Value(infoKey{}).(Info)
	i.Reasons = slices.Clone(i.Reasons)
	return i
}

// maxReasons bounds the reasons that are kept for each object.
const maxReasons = 16

// reasons are the reasons of one object that no reconciliation has handled yet.
type reasons struct {
	list    []Reason
	dropped int
}

func (rs *reasons) empty() bool { return len(rs.list) == 0 }

// add adds a reason. A later one about the same object replaces an earlier one.
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

// prepend prepends reasons that a reconciliation took but did not handle.
func (rs *reasons) prepend(old reasons) {
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

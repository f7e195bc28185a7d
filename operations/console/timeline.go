package console

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// timeline is the history of an operation on one axis.
type timeline struct {
	Begin, End time.Time
	Lanes      []lane
	Ticks      []tick
	High       int
	Tries      []tryRow          // remembered tries, in order
	Known      executor.Attempts // the source of Tries
	More       bool              // there were further tries or polls
}

// tryRow is one remembered try or poll.
type tryRow struct {
	executor.Attempt
	Kind string // of the call
}

// Took returns the duration, so far if it has not ended.
func (r *tryRow) Took(now time.Time) time.Duration {
	if r.Ended.IsZero() {
		return now.Sub(r.Began)
	}
	return r.Ended.Sub(r.Began)
}

// Result returns the verdict in words.
func (r *tryRow) Result() string {
	switch r.Verdict {
	case webhook.Succeeded:
		return "succeeded"
	case webhook.Accepted:
		return "accepted, to be polled"
	case webhook.Pending:
		return "not done yet"
	case webhook.Retry:
		return "to be retried"
	case webhook.Failed, webhook.Invalid, webhook.Refused:
		return "failed: " + r.Verdict.String()
	case webhook.Canceled:
		return "cut off"
	}
	return "in progress"
}

// Text returns whether it is an attempt or a poll, and how it ended.
func (r *tryRow) Text() string {
	what := "attempt"
	if r.Poll {
		what = "poll"
	}
	if r.Status != 0 {
		what += ", HTTP " + strconv.Itoa(r.Status)
	}
	return what + ": " + r.Result()
}

// class returns the CSS class of its bar.
func (r *tryRow) class() string {
	switch r.Verdict {
	case webhook.Succeeded:
		return "good"
	case webhook.Retry, webhook.Failed, webhook.Invalid, webhook.Refused:
		return "bad"
	case webhook.Canceled:
		return "wait"
	}
	return "going"
}

// purposes maps kinds of calls to purposes.
var purposes = map[string]webhook.Purpose{
	kindCall: webhook.Main, kindCompensation: webhook.Compensate, kindNotification: webhook.Notify,
}

// The kinds of lanes that are calls.
const (
	kindCall         = "call"
	kindCompensation = "compensation"
	kindNotification = "notification"
)

// remember adds the remembered tries to the lanes of their calls.
func (t *timeline) remember(known executor.Attempts, x func(time.Time) float64, now time.Time) {
	t.Known, t.More = known, known.Dropped > 0
	for i := range t.Lanes {
		l := &t.Lanes[i]
		if l.Call == nil {
			continue
		}
		tries, polls := 0, 0
		var bars []bar
		for _, a := range known.Last {
			if a.Webhook != l.Call.WebhookID || a.Purpose != purposes[l.Kind] {
				continue
			}
			one := tryRow{a, l.Kind}
			from, to := x(a.Began), x(a.Began.Add(one.Took(now)))
			bars = append(bars, bar{X: from, Wide: max(to-from, leastShown), Class: one.class() + " try", Title: one.Text()})
			if a.Poll {
				polls++
			} else {
				tries++
			}
		}
		// The status is written after a try, so it may lag by one.
		more := tries < int(l.Call.RetriesCount)+1 && l.Call.RetriesCount > 0 || polls == 0 && l.Call.LastPollTimestamp != nil
		t.More = t.More || more
		if len(bars) > 0 {
			l.Bars[0].Class += " whole"
			l.Bars = append(l.Bars, bars...)
		}
	}
	for _, a := range known.Last {
		for kind, purpose := range purposes {
			if purpose == a.Purpose {
				t.Tries = append(t.Tries, tryRow{a, kind})
			}
		}
	}
}

// lane is a row of the picture: a call, or the wait before the first one.
type lane struct {
	Title, Kind string // kinds: wait, call, compensation, notification
	State       string
	Y, TextY    int
	Bars        []bar
	Marks       []mark
	Call        *v1alpha1.WebhookCallStatus // nil: a wait
	From, To    time.Time
	Open        bool // not ended
}

// bar is a part of a lane, in units of the picture.
type bar struct {
	X, Wide float64
	Class   string
	Title   string
}

// mark is a point in time.
type mark struct {
	X            float64
	Class, Title string
}

type tick struct {
	X     float64
	Label string
}

// Dimensions of the picture.
const (
	laneHigh   = 22
	timeWide   = 1000.0
	ticksWant  = 5
	leastShown = 3.0
)

// Dimensions around the lanes of a timeline.
const (
	timelineLeft = 220.0
	tickText     = 18
	barInset     = 4

	phoneLane  = 36
	phoneInset = 6.0
	phoneWide  = 308.0 // of 320, the page width on a phone
)

// timelineOf draws an operation with its remembered tries.
func timelineOf(op *v1alpha1.Operation, known executor.Attempts, now time.Time) *timeline {
	v := operations.ViewOf(op)
	t := &timeline{Begin: v.CreatedAt, End: now}
	if v.FinishedAt != nil {
		t.End = *v.FinishedAt
	}
	if t.Begin.IsZero() || t.End.Before(t.Begin) {
		t.Begin = t.End
	}
	type group struct {
		kind  string
		calls []v1alpha1.WebhookCallStatus
	}
	var groups []group
	if op.PickedUp() {
		groups = []group{{kindCall, op.Status.Webhooks}, {kindCompensation, op.Status.Compensations}}
		if op.Status.Notification != nil {
			groups = append(groups, group{kindNotification, []v1alpha1.WebhookCallStatus{*op.Status.Notification}})
		}
	}
	for _, g := range groups {
		for i := range g.calls {
			if at := moment(g.calls[i].FinishedAt); at.After(t.End) { // a notification follows the end
				t.End = at
			}
			if at := moment(g.calls[i].NextAttemptAt); at.After(t.End) && v.FinishedAt == nil {
				t.End = at
			}
		}
	}
	span := max(t.End.Sub(t.Begin), time.Millisecond)
	x := func(at time.Time) float64 {
		return min(max(timeWide*float64(at.Sub(t.Begin))/float64(span), 0), timeWide)
	}
	first := firstCall(op)
	if op.PickedUp() || first.IsZero() {
		wait := lane{Title: "before the first call", Kind: "wait", From: t.Begin, To: first}
		if first.IsZero() {
			wait.To, wait.Open = t.End, v.FinishedAt == nil
			if wait.Open {
				wait.To = now
			}
		}
		wait.Bars = []bar{{X: 0, Wide: max(x(wait.To), leastShown), Class: "wait", Title: pages.Human(wait.To.Sub(t.Begin))}}
		if at := moment(op.Status.InitializedAt); op.PickedUp() && !at.IsZero() {
			wait.Marks = append(wait.Marks, mark{x(at), "picked", "picked up"})
		}
		t.Lanes = append(t.Lanes, wait)
	}
	for _, g := range groups {
		for i := range g.calls {
			t.Lanes = append(t.Lanes, laneOf(&g.calls[i], g.kind, t, x, now, v.FinishedAt == nil))
		}
	}
	t.remember(known, x, now)
	for i := range t.Lanes {
		t.Lanes[i].Y = i * laneHigh
		t.Lanes[i].TextY = i*laneHigh + laneHigh/2
	}
	t.High = len(t.Lanes) * laneHigh
	for i := range ticksWant + 1 {
		part := time.Duration(i) * span / ticksWant
		t.Ticks = append(t.Ticks, tick{timeWide * float64(i) / ticksWant, "+" + pages.Human(part)})
	}
	return t
}

// laneOf draws one call.
func laneOf(
	call *v1alpha1.WebhookCallStatus, kind string, t *timeline, x func(time.Time) float64, now time.Time, live bool,
) lane {
	l := lane{Title: call.WebhookID, Kind: kind, State: string(call.State), Call: call, From: moment(call.StartedAt)}
	if l.From.IsZero() {
		l.From = t.Begin
	}
	if l.To = moment(call.FinishedAt); l.To.IsZero() {
		if l.To, l.Open = t.End, true; live {
			l.To = now
		}
	}
	class := map[v1alpha1.Phase]string{
		v1alpha1.PhaseSuccess: "good", v1alpha1.PhaseFailed: "bad",
	}[call.State]
	if class == "" {
		class = "going"
	}
	l.Bars = []bar{{
		X: x(l.From), Wide: max(x(l.To)-x(l.From), leastShown), Class: class,
		Title: pages.Human(l.To.Sub(l.From)),
	}}
	if next := moment(call.NextAttemptAt); l.Open && next.After(now) {
		wait := bar{
			X: x(now), Wide: max(x(next)-x(now), leastShown), Class: "until",
			Title: "waiting " + pages.Human(next.Sub(now)),
		}
		l.Bars = append(l.Bars, wait)
		l.Marks = append(l.Marks, mark{x(next), "next", "next attempt or poll"})
	}
	if at := moment(call.LastPollTimestamp); !at.IsZero() {
		l.Marks = append(l.Marks, mark{x(at), "poll", "last poll"})
	}
	return l
}

// firstCall returns the start of the first call, or zero.
func firstCall(op *v1alpha1.Operation) (first time.Time) {
	if !op.PickedUp() {
		return first
	}
	for _, calls := range [][]v1alpha1.WebhookCallStatus{op.Status.Webhooks, op.Status.Compensations} {
		for i := range calls {
			if at := moment(calls[i].StartedAt); !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

func moment(at *metav1.MicroTime) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

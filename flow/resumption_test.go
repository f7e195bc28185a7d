package flow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlanResumption: the position alone decides how a fiber continues. Times are in minutes after the position was
// saved.
func TestPlanResumption(t *testing.T) {
	t.Parallel()
	d := New("f", note("a"), Step("b", stay, Deadline(time.Minute)), Detour("d", stay), note("c")).def
	saved := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := &handClock{now: saved.Add(10 * time.Minute)}
	line := newTimeline(clock)
	now := line.now()
	at := func(minutes int) time.Time { return saved.Add(time.Duration(minutes) * time.Minute) }
	in := func(minutes int) int64 { return line.since(at(minutes)) }
	repeat := func(to, attempt int32, entered int64) move {
		return move{kind: moveRepeat, to: to, attempt: attempt, entered: entered}
	}
	for _, tc := range []struct {
		reason string
		pos    Position
		want   resumption
		fails  bool
	}{
		{
			reason: "an interrupted wait runs its step again, with the same deadline",
			pos:    Position{Step: "b", Reason: "await", Attempt: 2, Begun: at(0), Started: at(1), Deadline: at(30), Else: "c"},
			want: resumption{
				first: repeat(1, 2, in(1)), began: in(0), cut: cutWait{pc: 1, orElse: 3, deadline: in(30)}, orElse: none,
			},
		},
		{
			reason: "a retry waits for the rest of its time",
			pos:    Position{Step: "b", Reason: "retry", Attempt: 2, Begun: at(0), Started: at(1), Wake: at(20)},
			want: resumption{
				first: repeat(1, 1, in(1)), began: in(0), cut: noWait, why: whyRetry, wake: in(20), resume: 1, orElse: none,
			},
		},
		{
			reason: "a delay is at the step that it leaves",
			pos: Position{
				Step: "c", Reason: "delay", Begun: at(0), Started: at(20), Wake: at(20), Else: "a",
				Left: &Place{Step: "b", Attempt: 1, Started: at(1)},
			},
			want: resumption{
				first: repeat(1, 1, in(1)), began: in(0), cut: noWait, why: whyDelay, wake: in(20), resume: 3, orElse: 0,
			},
		},
		{
			reason: "no step follows the delay",
			pos: Position{
				Step: "c", Reason: "delay", Begun: at(0), Started: at(20), Wake: at(20), Last: true,
				Left: &Place{Step: "c", Started: at(1)},
			},
			want: resumption{
				first: repeat(3, 0, in(1)), began: in(0), cut: noWait, why: whyDelay, wake: in(20), resume: none, orElse: none,
			},
		},
		{
			reason: "a detour returns",
			pos: Position{
				Step: "d", Reason: "save", Begun: at(0), Started: at(1), Back: []Place{{Step: "b", Attempt: 3, Started: at(2)}},
			},
			want: resumption{
				first: repeat(2, 0, in(1)), began: in(0), back: []back{{pc: 1, attempt: 3, entered: in(2)}},
				cut: cutWait{pc: 2, orElse: none}, orElse: none,
			},
		},
		{
			reason: "the step of a fiber that has moved runs at once",
			pos:    Position{Step: "c", Reason: "moved", Begun: at(0), Started: at(1)},
			want:   resumption{first: repeat(3, 0, in(1)), began: in(0), cut: noWait, orElse: none},
		},
		{
			reason: "times in the future and negative attempts are ignored",
			pos:    Position{Step: "c", Reason: "moved", Attempt: -7, Begun: at(50), Started: at(50)},
			want:   resumption{first: repeat(3, 0, now), began: now, cut: noWait, orElse: none},
		},
		{
			reason: "a detour with an unknown return address",
			pos:    Position{Step: "d", Reason: "save", Back: []Place{{Step: "gone"}}}, fails: true,
		},
		{reason: "a detour without one", pos: Position{Step: "d", Reason: "save"}, fails: true},
		{
			reason: "a delay that leaves an unknown step",
			pos:    Position{Step: "c", Reason: "delay", Wake: at(20), Left: &Place{Step: "gone"}}, fails: true,
		},
	} {
		got, ok := planResumption(d, d.index[tc.pos.Step], &tc.pos, &line, now)
		if ok == tc.fails {
			t.Errorf("%s: it resumes: %t", tc.reason, ok)
			continue
		}
		compare := cmp.AllowUnexported(resumption{}, move{}, back{}, cutWait{})
		if diff := cmp.Diff(tc.want, got, compare); diff != "" && ok {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

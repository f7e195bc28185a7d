package flowtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// The test plays flows of several steps, each with any outcome and any options, and with detours. No step loses state
// that another one has left.
func TestRandomProgramsSurviveCrashes(t *testing.T) {
	t.Parallel()
	all, with := outcomes(), variants()
	seed.Play(t, 40, func(t *testing.T, s uint64) {
		t.Parallel()
		r := seed.Rand(s, "program")
		fl, opt, text := program(r, all, with)
		crashes := 1
		if r.IntN(8) == 0 {
			crashes = 2
		}
		apart(t, func(t *testing.T) { play(t, text, fl, opt, crashes) })
	})
}

// program returns a flow of up to four random steps, each of which may be a detour or in a group. It adds the steps
// that follow them.
func program(r *rand.Rand, all []outcome, with []variant) (fl *flow.Flow[seen], start flow.StartOptions, text string) {
	var nodes, detours []flow.Node[seen]
	var said []string
	for i := range 1 + r.IntN(4) {
		group, o := fmt.Sprint("s", i), all[r.IntN(len(all))]
		var opts []flow.Option
		saying := []string{o.name}
		for range r.IntN(3) {
			v := with[r.IntN(len(with))]
			opts, saying = append(opts, v.opts...), append(saying, v.name)
			if t := v.start.Timeout; t > 0 {
				start.Timeout = t + time.Duration(r.IntN(4))*sec
			}
		}
		x := func(ctx context.Context, f *sfib) flow.Next { look(f); return o.next(ctx, f) }
		if r.IntN(3) > 0 {
			opts = append(opts, sundo(group))
			nodes = append(nodes, flow.Group(group, flow.Step("x", x, opts...)))
		} else {
			saying = append(saying, "a detour")
			nodes = append(nodes, flow.Step("to-"+group, func(_ context.Context, f *sfib) flow.Next {
				switch look(f); {
				case f.Attempt() > 0:
					return f.Next()
				case i%2 == 0:
					return f.Delay(sec).Then(group)
				}
				return f.Await(yes).Then(group)
			}, flow.Deadline(sec+sec/3), flow.OnError("handler")))
			detours = append(detours, flow.Group(group, flow.Detour("x", x, opts...)))
		}
		said = append(said, strings.Join(saying, " with "))
	}
	nodes = append(append(nodes, sfollow(), szed()), append(detours, sdetours()...)...)
	return flow.New("f", nodes...), start, strings.Join(said, "; ")
}

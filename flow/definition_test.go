package flow_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/outline"
)

// TestDefinition: a definition has the steps in order, with their targets. The Info of a fiber, or of a child of a
// fork, has the definition of its flow and the current step.
func TestDefinition(t *testing.T) {
	t.Parallel()
	next := func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Next() }
	waits := func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Delay(time.Hour) }
	kid := flow.New("kid", flow.Step("waits", waits))
	fl := flow.New("bring-up",
		flow.Step("begin", next, flow.To("give-up"), flow.Save()),
		flow.Group("servers",
			flow.Fork("all", func(context.Context, *flow.Fiber[int]) ([]flow.Child, error) {
				return []flow.Child{kid.Child("one", new(int))}, nil
			}),
			flow.Step("wait", next, flow.Deadline(time.Minute), flow.OnError("again")),
			flow.Detour("again", next),
		),
		flow.Step("give-up", next, flow.Undo(next)),
	)
	want := outline.Flow{Name: "bring-up", Steps: []outline.Step{
		{Path: "begin", Next: "servers/all", To: []string{"give-up"}, Saves: true},
		{Path: "servers/all", Next: "servers/wait", Fork: true},
		{Path: "servers/wait", Next: "give-up", OnError: "servers/again", Deadline: time.Minute},
		{Path: "servers/again", Detour: true},
		{Path: "give-up", Undoes: true},
	}}
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(context.WithoutCancel(t.Context()))
	if _, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Key: "a/x"}); err != nil {
		t.Fatal(err)
	}
	steps := map[string]flow.Info{}
	for tick := time.NewTicker(time.Millisecond); len(steps) < 2; <-tick.C {
		clear(steps)
		for i := range e.Fibers() {
			if i.Status == flow.Parked {
				steps[i.Flow+": "+i.Step] = i
			}
		}
		if t.Context().Err() != nil {
			t.Fatalf("the fibers are at %v", steps)
		}
	}
	root, child := steps["bring-up: servers/all"], steps["kid: waits"]
	if diff := cmp.Diff(want, root.Definition()); diff != "" || child.Path != "bring-up/servers/all[one]/waits" {
		t.Errorf("%s of %+v: -want +got:\n%s", child.Path, child, diff)
	}
	if diff := cmp.Diff(outline.Flow{Name: "kid", Steps: []outline.Step{{Path: "waits"}}},
		child.Definition()); diff != "" {
		t.Errorf("of the child: -want +got:\n%s", diff)
	}
	var read flow.Info
	if raw, err := json.Marshal(child); err != nil || json.Unmarshal(raw, &read) != nil || read.Step != "waits" {
		t.Errorf("read from JSON: %+v %v", read, err)
	}
	if got := read.Definition(); got.Name != "" || got.Steps != nil {
		t.Errorf("an Info that no engine has created has the definition %+v", got)
	}
}

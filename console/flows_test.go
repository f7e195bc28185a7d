package console_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/flow"
)

// TestFlowGraph: the page of a flow shows all steps in order, including those without fibers, with groups, forks and
// detours. It shows the numbers of live and parked fibers. A step links to its fibers. The page exists after the last
// fiber has ended.
func TestFlowGraph(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := flow.NewEngine(flow.EngineOptions{})
		t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
		next := func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Next() }
		waits := func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Delay(time.Hour) }
		kid := flow.New("server", flow.Step("wait-ready", waits))
		fl := flow.New("bring-up",
			flow.Step("admin", next, flow.To("give-up")),
			flow.Group("servers",
				flow.Fork("managed", func(context.Context, *flow.Fiber[int]) ([]flow.Child, error) {
					return []flow.Child{kid.Child("one", new(int)), kid.Child("two", new(int))}, nil
				}, flow.OnError("again")),
				flow.Step("check", next),
				flow.Detour("again", next),
			),
			flow.Step("give-up", next),
		)
		p := newProgram(t, func(rt *fairlead.Runtime) { rt.Flows(e) })
		h, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Key: "a/x"})
		if err != nil {
			t.Fatal(err)
		}
		body := p.eventually("all", "/console/flows/bring-up", `<b>1</b> live, <b>1</b> parked`)
		if !strings.Contains(body, `runs <b>2</b> of <a href="/console/flows/server">server</a>`) {
			t.Errorf("the flow has no link to its subflow: %s", body)
		}
		rest := body
		for _, want := range []string{
			`id="step-bring-up/admin"`, `can go to <a href="#step-bring-up/give-up">`, `<b>servers</b>`,
			`id="step-bring-up/servers/managed"`,
			`>fork<`, `<b>1</b> live, <b>1</b> parked`, `on an error to <a href="#step-bring-up/servers%2fagain">`,
			`id="step-bring-up/servers/check"`, `0 live, 0 parked`, `id="step-bring-up/servers/again"`, `>detour<`,
			`id="step-bring-up/give-up"`,
		} {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Fatalf("there is no %q, or it comes too early: %s", want, body)
			}
			rest = after
		}
		if body := p.page("all", "/console/flows/bring-up?step=bring-up/servers/check"); strings.Contains(body, ">a/x<") ||
			!strings.Contains(body, "No fiber is at this step") {
			t.Errorf("at a step without fibers: %s", body)
		}
		body = p.page("all", "/console/flows/bring-up?step=bring-up/servers/managed")
		if !strings.Contains(body, ">a/x<") || !strings.Contains(body, " data-since>since ") {
			t.Errorf("the step has no link to its fiber: %s", body)
		}
		p.eventually("all", "/console/flows/server", "<b>2</b> live, <b>2</b> parked") // the children are counted together
		h.Cancel(context.Canceled)
		<-h.Done()
		body = p.eventually("all", "/console/flows/bring-up", "No fiber is in this flow now")
		if !strings.Contains(body, `id="step-bring-up/servers/check"`) {
			t.Errorf("the steps are gone with the fiber: %s", body)
		}
		p.eventually("all", "/console/flows", `Flows without fibers</h2><ul><li><a href="/console/flows/bring-up">`)
	})
}

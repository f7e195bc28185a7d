package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestProgram checks the pages of a program with controllers and flows of its own in trouble. Objects are unreadable,
// fail, run and wait, and a flow has groups, forks and detours.
func TestProgram(t *testing.T) {
	b := open(browser(t), t, troubled(t), desk)
	for name, shows := range map[string]string{
		"sources": "cannot decode", "controllers": "the quota is used up", "flows/bring-up": "runs 3 of server",
		"flows/bring-up?step=bring-up%2Fservers%2Fmanaged": "prod/orders",
	} {
		b.visit("/console/" + name)
		b.until(name+" shows "+shows, fmt.Sprintf("document.body.innerText.includes(%q)", shows))
		for _, w := range []window{{360, 740, false}, {360, 740, true}, {1600, 1000, false}, {1600, 1000, true}} {
			b.run(b.as(w))
			b.axe(fmt.Sprintf("%s: %+v", name, w))
			if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s is %d pixels wider than %d", name, over, w.wide)
			}
			if dir := os.Getenv("FAIRLEAD_SCREENSHOTS"); dir != "" {
				file := fmt.Sprintf("program-%s-%d-%s.png", filepath.Base(name), w.wide,
					map[bool]string{false: "light", true: "dark"}[w.dark])
				b.shoot(filepath.Join(dir, file))
			}
		}
	}
	b.run(b.as(desk))
	b.visit("/console/flows/bring-up")
	b.run(chromedp.Click(`a[href*="servers%2fmanaged"], a[href*="servers%2Fmanaged"]`))
	b.until("does a step lead to its fibers",
		`location.search.includes("managed") && document.querySelector("tbody").innerText.includes("prod/orders")`)
}

// troubled starts such a program and returns the address of its console.
func troubled(t *testing.T) string {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	put := func(name string) {
		if _, err := server.Put(&corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Data: map[string]string{"k": "v"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("poisoned")
	if err := server.Poison(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "prod", "poisoned",
		func(raw []byte) []byte {
			return bytes.Replace(raw, []byte(`"data":{"k":"v"}`), []byte(`"data":"poison"`), 1)
		}); err != nil {
		t.Fatal(err)
	}
	put("fails")
	rt := fairlead.New(server.Config(), fairlead.WithConsole(console.Options{InsecureNoAuth: true}))
	begun, hold, failed := make(chan struct{}, 8), make(chan struct{}), make(chan string, 100)
	reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](func(_ context.Context,
		m *corev1.ConfigMap,
	) (reconcile.Result, error) {
		if m.Name == "fails" {
			return reconcile.Retry(errors.New("the quota is used up"))
		}
		begun <- struct{}{}
		<-hold
		return reconcile.Done, nil
	}), reconcile.WithoutEvents(), reconcile.Workers(1),
		reconcile.OnFailure(func(f reconcile.Failure) {
			select {
			case failed <- f.Key.String():
			default:
			}
		}))
	e := flow.NewEngine(flow.EngineOptions{})
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	rt.Flows(e)
	bringUp(t, e)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	pages := httptest.NewServer(rt.Handler())
	t.Cleanup(func() {
		pages.CloseClientConnections()
		pages.Close()
		close(hold)
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if err := rt.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	for failing := map[string]bool{}; len(failing) < 2; {
		failing[<-failed] = true
	}
	put("worked-on")
	<-begun
	put("waits")
	return pages.URL
}

// bringUp starts a flow that waits for children and does not reach its other steps.
func bringUp(t *testing.T, e *flow.Engine) {
	t.Helper()
	next := func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Next() }
	server := flow.New("server", flow.Step("wait-ready",
		func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Delay(time.Hour) }))
	bring := flow.New("bring-up",
		flow.Step("admin-server", next, flow.To("give-up"), flow.Save()),
		flow.Group("servers",
			flow.Fork("managed", func(context.Context, *flow.Fiber[int]) (all []flow.Child, err error) {
				for i := range 3 {
					all = append(all, server.Child(fmt.Sprint("server-", i), new(int)))
				}
				return all, nil
			}, flow.OnError("read-again")),
			flow.Step("check", next, flow.Deadline(5*time.Minute)),
			flow.Detour("read-again", next),
		),
		flow.Step("report", next, flow.Undo(next)),
		flow.Step("give-up", next),
	)
	for _, key := range []string{"prod/orders"} {
		if _, err := bring.Start(context.Background(), e, new(int), flow.StartOptions{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

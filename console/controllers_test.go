package console_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestWork: a controller shows what waits for a worker for longest, what is worked on now, and what fails with its next
// try, to who may get those objects; others are told that there are some. Who follows a link is told why.
func TestWork(t *testing.T) {
	t.Parallel()
	begun, hold := make(chan string, 8), make(chan struct{})
	p := newProgram(t, func(rt *fairlead.Runtime) {
		reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](func(_ context.Context, m *corev1.ConfigMap) (reconcile.Result, error) {
			if m.Name == "fails" {
				return reconcile.Retry(errors.New("the quota is used up"))
			}
			begun <- m.Name
			<-hold
			return reconcile.Done, nil
		}), reconcile.WithoutEvents(), reconcile.Workers(1))
	})
	p.put("team", "fails")
	p.run()
	t.Cleanup(func() { close(hold) })
	p.eventually("all", "/console/controllers", "the quota is used up")
	p.put("team", "bad")
	if name := <-begun; name != "bad" {
		t.Fatal(name)
	}
	p.put("elsewhere", "waits")
	p.eventually("all", "/console/controllers", "elsewhere/waits")
	for reader, want := range map[string]struct {
		shows, hides []string
	}{
		"all": {[]string{
			`>elsewhere/waits</a> since <time`, `>team/bad</a>`, `>team/fails</a>`, "the quota is used up", "/console/why?kind=ConfigMap&amp;name=bad&amp;namespace=team",
		}, []string{"Hidden"}},
		"team":     {[]string{"team/bad", "team/fails", "the quota is used up", "Hidden"}, []string{"elsewhere"}},
		"stranger": {[]string{"Hidden"}, []string{"team/bad", "team/fails", "elsewhere", "the quota"}},
	} {
		body := p.page(reader, "/console/controllers")
		for _, text := range want.shows {
			if !strings.Contains(body, text) {
				t.Errorf("%s is not shown %q: %s", reader, text, body)
			}
		}
		for _, text := range want.hides {
			if strings.Contains(body, text) {
				t.Errorf("%s is shown %q: %s", reader, text, body)
			}
		}
	}
	if body := p.page("all", "/console/why?kind=ConfigMap&name=fails&namespace=team"); !strings.Contains(body, "the quota is used up") {
		t.Errorf("who follows the link is not told why: %s", body)
	}
}

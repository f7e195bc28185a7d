package console_test

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestWork: readers who may get the objects see the oldest queued, the running and the failing ones. Each has its next
// attempt and a link to the page Why. Other readers see that there are some.
func TestWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, hold := make(chan string, 8), make(chan struct{})
		p := newProgram(t, func(rt *fairlead.Runtime) {
			maps(rt, func(m *corev1.ConfigMap) (reconcile.Result, error) {
				if m.Name == "fails" {
					return reconcile.Retry(errors.New("the quota is used up"))
				}
				begun <- m.Name
				<-hold
				return reconcile.Done, nil
			}, reconcile.Workers(1))
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
		p.shown("/console/controllers", map[string]contents{
			"all": {[]string{
				`>elsewhere/waits</a> <time`, `>team/bad</a>`, `>team/fails</a>`, "the quota is used up",
				"/console/why?kind=ConfigMap&amp;name=bad&amp;namespace=team",
			}, []string{"Hidden"}},
			"team":     {[]string{"team/bad", "team/fails", "the quota is used up", "Hidden"}, []string{"elsewhere"}},
			"stranger": {[]string{"Hidden"}, []string{"team/bad", "team/fails", "elsewhere", "the quota"}},
		})
		p.shown("/console/why?kind=ConfigMap&name=fails&namespace=team", map[string]contents{
			"all": {[]string{"the quota is used up"}, nil}, // the target of the link
		})
	})
}

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestShards: the page of a group of three shows the holders of slots, and the slots of a dead replica.
func TestShards(t *testing.T) {
	w, chromium := newWorld(t), browser(t)
	kills := map[string]func(){}
	for range 3 {
		base, kill := w.controller("--shards")
		kills[base], w.base = kill, base // the last one shows the pages
	}
	b := open(chromium, t, w.base, desk)
	b.logIn(w.admin)
	b.visit("/console/shards")
	const rows = `[...document.querySelectorAll("main tbody tr")]`
	const holds = `.map(r => parseInt(r.cells[1].innerText)).reduce((a, n) => a + n, 0)`
	b.until("do three members hold all slots, each of them some", rows+".length === 3 && "+rows+holds+" === 64 && "+
		rows+`.every(r => parseInt(r.cells[1].innerText) > 0)`)
	b.axe("three members")
	for base, kill := range kills {
		if base != w.base {
			kill()
			break
		}
	}
	const alive = rows + `.filter(r => !r.innerText.includes("silent"))` // the dead one is silent, or has been removed
	b.until("do the two others hold all slots", alive+".length === 2 && "+alive+holds+" === 64")
	if text := b.text(); strings.Contains(text, "No member holds") {
		t.Errorf("all slots are held, and the page says: %s", text)
	}
	b.run(b.as(window{360, 740, true}))
	b.axe("on a phone")
	if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		t.Errorf("it is %d pixels wider than a phone", over)
	}
}

// TestControllers: the page of a program names failing objects and their errors, even hostile ones. It links to the
// page Why, and removes a repaired object.
func TestControllers(t *testing.T) {
	w, chromium := newWorld(t), browser(t)
	var repaired atomic.Bool
	rt := fairlead.New(w.config, fairlead.WithConsole(console.Options{InsecureNoAuth: true}))
	reconcile.New(rt, "settings", reconcile.Func[corev1.ConfigMap](func(_ context.Context,
		c *corev1.ConfigMap,
	) (reconcile.Result, error) {
		switch {
		case c.Namespace != w.namespace || c.Labels["fails"] == "":
			return reconcile.Done, nil
		case c.Name == "terminal":
			return reconcile.Terminal(errors.New("the setting makes no sense"))
		case c.Name == "panics":
			panic("an index is out of range")
		case c.Name == "repaired" && repaired.Load():
			return reconcile.Done, nil
		}
		return reconcile.Retry(errors.New(hostile))
	}))
	const failing = 30
	names := []string{"terminal", "panics", "repaired"}
	for i := range failing {
		names = append(names, fmt.Sprintf("fails-%02d", i))
	}
	for _, name := range names {
		if _, err := w.clients.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fails": "yes"}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := rt.Run(ctx); err != nil {
			t.Errorf("the program ended: %v", err)
		}
	})
	server := httptest.NewServer(rt.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		stop()
		running.Wait()
	})
	b := open(chromium, t, server.URL, desk)
	b.visit("/console/controllers")
	count := fmt.Sprintf(`[...document.querySelectorAll("dl.facts div")].some(d => d.innerText.includes("Failing") && d.innerText.includes("%%d"))`)
	b.until("do all fail", fmt.Sprintf(count, len(names)))
	row := func(name string) string {
		return fmt.Sprintf(`document.getElementById("failure-settings-%s/%s")`, w.namespace, name)
	}
	b.until("are errors shown", row("terminal")+"?.innerText.includes('makes no sense')")
	b.until("are panics shown", row("panics")+"?.innerText.includes('out of range')")
	b.until("are attempts counted", "parseInt("+row("repaired")+"?.cells[2].innerText) > 2")
	if n := eval[int](b, "document.querySelectorAll('main script, main img, main [onerror]').length"); n > 0 {
		t.Errorf("the text of an error became part of the page")
	}
	if text := b.text(); strings.ContainsAny(text, "\u202e\u2066\u200b") || !strings.Contains(text, "<script>alert(1)") {
		t.Errorf("the text of an error is not shown unchanged: %s", text)
	}
	for _, look := range []window{desk, {360, 740, true}} {
		b.run(b.as(look))
		b.axe(fmt.Sprintf("failing objects: %+v", look))
		if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
			t.Errorf("it is %d pixels wider than %d", over, look.wide)
		}
	}
	b.run(b.as(desk))
	repaired.Store(true)
	b.until("is the repaired object gone", row("repaired")+" === null")
	b.run(chromedp.Evaluate(row("terminal")+`.querySelector("a").click()`, nil))
	b.until("does the link lead to the cause",
		`location.pathname === "/console/why" && document.body.innerText.includes("makes no sense")`)
}

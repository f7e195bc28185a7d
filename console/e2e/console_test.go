package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestConsole runs all its checks in one world and one browser.
func TestConsole(t *testing.T) {
	w, chromium := newWorld(t), browser(t)
	w.base, _ = w.controller()
	app := func(id string) operations.Resource { return operations.Resource{Type: "app", ID: id} }
	done := w.schedule(operations.Request{Resource: app("done"), Webhooks: []string{"ok"}}, v1alpha1.PhaseSuccess)
	failed := w.schedule(operations.Request{
		Resource: app(hostile), Category: hostile, CorrelationID: markup, Webhooks: []string{"refuses"},
	}, v1alpha1.PhaseFailed)
	waits := w.schedule(operations.Request{Resource: app("waits"), Webhooks: []string{"missing"}},
		v1alpha1.PhaseInProgress)
	slow := w.schedule(operations.Request{Resource: app("slow"), Webhooks: []string{"slow"}}, v1alpha1.PhaseInProgress)

	pages := map[string]string{
		"overview": "/console/overview", "operations": "/console/operations", "none": "/console/operations?q=nosuchthing",
		"webhooks": "/console/webhooks", "sources": "/console/sources", "controllers": "/console/controllers",
		"flows": "/console/flows", "flow": "/console/flows/operation", "why": "/console/why", "done": path(done),
		"failed": path(failed), "waits": path(waits),
		"slow":      path(slow),
		"why-waits": fmt.Sprintf("/console/why?kind=Operation&namespace=%s&name=%s", waits.Namespace, waits.Name),
	}
	t.Run("Pages", func(t *testing.T) {
		b := open(chromium, t, w.base, desk)
		b.logIn(w.admin)
		look := func(name string) {
			for _, w := range []window{desk, {1600, 1000, true}, {360, 740, false}} {
				b.run(b.as(w))
				b.axe(fmt.Sprintf("%s: %+v", name, w))
			}
			b.run(b.as(desk))
			if eval[int](b, "document.querySelectorAll('h1').length") != 1 {
				t.Errorf("%s: not one title", name)
			}
		}
		for name, path := range pages {
			b.visit(path)
			look(name)
		}
		b.visit("/console/flows/operation")
		b.run(chromedp.Click(`a[href^="/console/fibers/"]`),
			chromedp.WaitVisible("//dt[text() = 'Current step']", chromedp.BySearch))
		look("a fiber")
	})
	t.Run("Sizes", func(t *testing.T) {
		b := open(chromium, t, w.base, desk)
		b.logIn(w.admin)
		for name, path := range pages {
			b.visit(path)
			for _, look := range []window{{360, 740, false}, {360, 740, true}, {1600, 1000, false}, {1600, 1000, true}} {
				b.run(b.as(look))
				if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
					t.Errorf("%s is %d pixels wider than %d", name, over, look.wide)
				}
				if dir := os.Getenv("FAIRLEAD_SCREENSHOTS"); dir != "" {
					b.shoot(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, look.wide,
						map[bool]string{false: "light", true: "dark"}[look.dark])))
				}
			}
		}
	})
	t.Run("Timeline", func(t *testing.T) {
		b := open(chromium, t, w.base, window{360, 740, false})
		b.logIn(w.admin)
		b.visit(path(slow))
		// Only one picture is shown. It fits, and its text is readable.
		if seen := eval[[]string](b, `[...document.querySelectorAll(".timeline svg")].filter(s => s.getClientRects().length > 0).map(s => {
			const box = s.getBoundingClientRect();
			const parts = [...s.querySelectorAll("text, rect, circle")].map(e => e.getBoundingClientRect());
			return box.right <= innerWidth && parts.every(p => p.left >= 0 && p.right <= innerWidth + 1) &&
				[...s.querySelectorAll("text")].every(e => e.getBoundingClientRect().height >= 10) ? "fits" : s.outerHTML;
		})`); len(seen) != 1 || seen[0] != "fits" {
			t.Errorf("the timeline on a phone: %q", seen)
		}
	})
	t.Run("Hostile", func(t *testing.T) {
		b := open(chromium, t, w.base, desk)
		b.logIn(w.admin)
		for _, path := range []string{
			path(failed), "/console/operations", "/console/operations?q=" + "%3Cscript%3Ealert(1)%3C/script%3E",
			"/console/why?kind=%3Cimg+src=x+onerror=alert(1)%3E&name=%22%3E%3Cscript%3E", "/console/overview",
		} {
			b.visit(path)
			if n := eval[int](b, "document.querySelectorAll('main script, main img, main [onerror]').length"); n > 0 {
				t.Errorf("%s: foreign markup became part of the page", path)
			}
			if text := b.text(); strings.ContainsAny(text, "\u202e\u2066\u200b") {
				t.Errorf("%s: characters that reverse the direction of a text are shown", path)
			}
		}
	})
	t.Run("Live", func(t *testing.T) {
		later := w.schedule(operations.Request{Resource: app("later"), Webhooks: []string{"later"}}, v1alpha1.PhaseInProgress)
		b := open(chromium, t, w.base, desk)
		b.logIn(w.admin)
		b.visit("/console/operations")
		b.run(chromedp.Evaluate("window.sameDocument = true; window.search = document.getElementById('f-q'); undefined", nil),
			chromedp.SendKeys("#f-q", "half a wor"))
		row := fmt.Sprintf("[...document.querySelectorAll('tr')].find(r => r.querySelector('a[href=%q]'))", path(later))
		b.until("is it in progress", row+"?.innerText.includes('in progress')")
		w.answers.Store(true)
		b.until("does a row change", row+"?.innerText.includes('succeeded')")
		if !eval[bool](b, "window.sameDocument === true") {
			t.Error("the page was loaded again")
		}
		if !eval[bool](b, "document.activeElement === window.search && window.search.value === 'half a wor'") {
			t.Error("an update of the page discards the text of a field")
		}
	})
	t.Run("Keyboard", func(t *testing.T) { keyboard(t, open(chromium, t, w.base, desk), w, path(waits), pages) })
	t.Run("CancelAndRetry", func(t *testing.T) {
		b := open(chromium, t, w.base, desk)
		b.logIn(w.admin)
		b.visit(path(waits))
		form := `form[action$="/cancel"] button`
		if eval[bool](b, fmt.Sprintf("document.querySelector(%q).checkVisibility()", form)) {
			t.Error("it is canceled without a confirmation")
		}
		b.run(chromedp.Click("//summary[contains(., 'Cancel')]", chromedp.BySearch),
			chromedp.Click(form, chromedp.NodeVisible))
		b.until("is it canceled", "document.querySelector('h1')?.innerText.includes('failed')")
		b.run(chromedp.Click("//summary[contains(., 'Retry')]", chromedp.BySearch),
			chromedp.Click(`form[action$="/retry"] button`, chromedp.NodeVisible))
		b.until("is it retried", "document.querySelector('h1')?.innerText.includes('in progress')")
	})
	t.Run("Tools", func(t *testing.T) { tools(t, open(chromium, t, w.base, desk), w) })
	t.Run("Login", func(t *testing.T) { login(chromium, t, w, path(done)) })
	t.Run("Session", func(t *testing.T) { sessions(chromium, t, w, path(done)) })
}

// logIn submits a token on the login page.
func (b *tab) logIn(token string) {
	b.t.Helper()
	b.visit("/console/login")
	b.run(chromedp.SetValue("#token", token), chromedp.Submit("#token"),
		chromedp.WaitVisible(`form[action="/console/logout"]`))
}

// keyboard reaches each action by tabulator, checks that the focus is visible, and cancels an operation by keyboard
// alone.
func keyboard(t *testing.T, b *tab, w *world, stuck string, pages map[string]string) {
	b.logIn(w.admin)
	const actions = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")].
		filter(e => e.checkVisibility())`
	for _, path := range slices.Sorted(maps.Values(pages)) {
		b.visit(path)
		want := eval[int](b, actions+".length")
		b.run(chromedp.Evaluate(`window.reached = new Set(); window.unseen = [];
			document.addEventListener("focusin", (e) => {
				window.reached.add(e.target);
				const s = getComputedStyle(e.target);
				if (s.outlineStyle === "none" && s.boxShadow === "none") window.unseen.push(e.target.outerHTML.slice(0, 120));
			}); undefined`, nil))
		for range want + 5 {
			b.run(chromedp.KeyEvent(kb.Tab))
		}
		if missed := eval[[]string](b,
			actions+".filter(e => !window.reached.has(e)).map(e => e.outerHTML.slice(0, 120))"); len(missed) > 0 {
			t.Errorf("%s: not reachable by tabulator: %q", path, missed)
		}
		if unseen := eval[[]string](b, "window.unseen"); len(unseen) > 0 {
			t.Errorf("%s: the focus is invisible: %q", path, unseen)
		}
	}
	b.visit(stuck)
	b.run(chromedp.Focus("//summary[contains(., 'Cancel')]", chromedp.BySearch), chromedp.KeyEvent(kb.Enter))
	b.until("does it ask", `document.querySelector('form[action$="/cancel"] button').checkVisibility()`)
	b.run(chromedp.KeyEvent(kb.Tab))
	const confirmation = `document.activeElement.matches('form[action$="/cancel"] button')`
	if !eval[bool](b, confirmation) {
		t.Errorf("the focus is not on the confirmation but on %s",
			eval[string](b, "document.activeElement.outerHTML.slice(0, 300)"))
	}
	before := eval[int](b, updates)
	b.run(chromedp.Evaluate(`for (const button of Array(2).fill(document.getElementById("pause"))) button.click()`, nil))
	b.until("is it updated", fmt.Sprintf("%s > %d", updates, before))
	if !eval[bool](b, confirmation) {
		t.Error("an update of the page takes the focus from the confirmation")
	}
}

// updates is the number of updates of an open page.
const updates = "Number(document.querySelector('main').dataset.updates || 0)"

// tools checks that a page can be paused, gives exact times, and copies values.
func tools(t *testing.T, b *tab, w *world) {
	held := w.schedule(operations.Request{
		Resource: operations.Resource{Type: "app", ID: "held"}, Webhooks: []string{"missing"},
	}, v1alpha1.PhaseInProgress)
	b.logIn(w.admin)
	b.visit(path(held))
	b.until("is it updated", updates+" > 0")
	b.run(chromedp.Focus("#pause"), chromedp.KeyEvent(kb.Enter))
	b.until("is it paused", `document.getElementById("live-state").innerText.startsWith("Paused")`)
	b.axe("paused")
	if _, err := w.scheduler.Cancel(w.ctx, operations.Resource{Type: "app", ID: "held"}, held.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	w.phase(held.Spec.ResourceID, v1alpha1.PhaseFailed)
	other := open(b.browser, t, w.base, desk) // another open page of it has been updated by now
	other.logIn(w.admin)
	other.visit(path(held))
	other.until("does another page show the end", "document.querySelector('h1').innerText.includes('failed')")
	if !eval[bool](b, "document.querySelector('h1').innerText.includes('in progress')") {
		t.Error("a paused page is updated")
	}
	b.run(chromedp.Click("#pause"))
	b.until("is it updated again", "document.querySelector('h1').innerText.includes('failed')")

	b.run(chromedp.Click("#times"))
	exact := `[...document.querySelectorAll("main time")].every(t => /^(since )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$/.test(t.innerText))`
	b.until("are times exact", exact)
	b.visit("/console/operations")
	b.until("does the next page remember",
		exact+` && document.getElementById("times").getAttribute("aria-pressed") === "true"`)
	b.run(chromedp.Click("#times"))
	b.until("are they relative", `[...document.querySelectorAll("main time")].some(t => t.innerText.endsWith("ago"))`)

	b.visit(path(held))
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		ctx = cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
		var errs []error
		for _, name := range []string{"clipboard-read", "clipboard-write"} {
			errs = append(errs, cdpbrowser.SetPermission(&cdpbrowser.PermissionDescriptor{Name: name},
				cdpbrowser.PermissionSettingGranted).WithOrigin(w.base).WithBrowserContextID(b.profile).Do(ctx))
		}
		return errors.Join(errs...)
	}), page.BringToFront(), chromedp.Click(`button[data-copy="`+held.EffectiveID()+`"]`))
	b.until("is it copied", `document.getElementById("said").innerText.startsWith("Copied")`)
	if got := eval[string](b, "navigator.clipboard.readText()"); got != held.EffectiveID() {
		t.Errorf("copied %q", got)
	}
}

// login: a reader without rights sees nothing, and not whether objects exist. Unknown and expired tokens are refused.
func login(chromium context.Context, t *testing.T, w *world, path string) {
	b := open(chromium, t, w.base, desk)
	b.expect("401")
	b.expect("403")
	b.expect("404")
	b.visit(path)
	if at := eval[string](b, "location.pathname"); at != "/console/login" {
		t.Errorf("without a token the page is %s", at)
	}
	b.run(chromedp.SetValue("#token", "forged"), chromedp.Submit("#token"), chromedp.WaitVisible(".notice.bad"))
	b.run(chromedp.SetValue("#token", w.stranger), chromedp.Submit("#token"),
		chromedp.WaitVisible(`form[action="/console/logout"]`))
	seen := map[string]string{}
	for _, path := range []string{
		path, "/console/operations/" + w.namespace + "/nothing",
		"/console/operations/elsewhere/nothing",
	} {
		b.visit(path)
		seen[eval[string](b, "document.querySelector('main').innerText")] = path
	}
	if len(seen) != 1 {
		t.Errorf("forbidden and missing objects have different answers: %q", seen)
	}
	for _, page := range []string{"overview", "operations", "webhooks", "sources", "controllers", "flows"} {
		b.visit("/console/" + page)
		if text := b.text(); strings.Contains(text, "done") || strings.Contains(text, "refuses") {
			t.Errorf("a stranger sees on %s: %s", page, text)
		}
	}
	b.run(chromedp.Click(`form[action="/console/logout"] button`), chromedp.WaitVisible("#token"))
	b.visit("/console/overview")
	if at := eval[string](b, "location.pathname"); at != "/console/login" {
		t.Errorf("after the end of the session the page shows %s", at)
	}
	leaver := w.account("leaver", "", time.Hour)
	b.run(chromedp.SetValue("#token", leaver), chromedp.Submit("#token"),
		chromedp.WaitVisible(`form[action="/console/logout"]`))
	if err := w.clients.CoreV1().ServiceAccounts(w.namespace).Delete(w.ctx, "leaver", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until("does the session end with the token", `location.pathname === "/console/login" ||
		document.readyState === "complete" && (location.reload(), false)`)
	cookie := &http.Cookie{Name: "fairlead-console", Value: "over"}
	b.run(chromedp.Evaluate(fmt.Sprintf("document.cookie = %q", cookie.String()), nil))
	b.visit("/console/overview")
	if !strings.Contains(b.text(), "has ended") {
		t.Errorf("the page does not say that the session has ended: %s", b.text())
	}
}

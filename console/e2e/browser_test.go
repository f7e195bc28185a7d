package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// browser starts a Chromium whose processes all end with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	var group int
	ended := make(chan struct{})
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(t.TempDir()), chromedp.Env("TMPDIR="+t.TempDir()), chromedp.WSURLReadTimeout(testlimit.Wait),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		}))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, quit := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		quit()
		stop()
		if group > 0 {
			_ = syscall.Kill(-group, syscall.SIGKILL) // processes that may be left
		}
		close(ended)
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("cannot start Chromium: %v", err)
	}
	group = chromedp.FromContext(ctx).Browser.Process().Pid
	return ctx
}

// tab is a page in a profile of its own, with the problems found on it.
type tab struct {
	context.Context
	t       *testing.T
	browser context.Context // of the tab
	profile cdp.BrowserContextID
	base    string // of the console: scheme and host

	mu       sync.Mutex
	problems []string
	sent     []string // requests, by URL
	expected []string // parts of problems that are intended
}

// window is the size and color scheme of a page.
type window struct {
	wide, high int64
	dark       bool
}

var desk = window{1600, 1000, false}

// open opens a tab. Problems on it fail the test at its end.
func open(browser context.Context, t *testing.T, base string, w window) *tab {
	t.Helper()
	var profile cdp.BrowserContextID
	var id target.ID
	if err := chromedp.Run(browser, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		ctx = cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
		if profile, err = target.CreateBrowserContext().Do(ctx); err != nil {
			return err
		}
		id, err = target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(ctx)
		return err
	})); err != nil {
		t.Fatalf("cannot open a tab: %v", err)
	}
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithTargetID(id))
	ctx, cancel := context.WithTimeout(ctx, testlimit.Wait)
	b := &tab{Context: ctx, t: t, browser: browser, profile: profile, base: base}
	t.Cleanup(func() {
		if t.Failed() {
			b.shoot(filepath.Join(t.ArtifactDir(), "failed.png"))
		}
		b.check()
		cancel()
		closeTab()
	})
	chromedp.ListenTarget(ctx, b.listen)
	b.run(network.Enable(), log.Enable(), runtime.Enable(), b.as(w))
	return b
}

// as changes the size and the color scheme of the page.
func (b *tab) as(w window) chromedp.Action {
	scheme := "light"
	if w.dark {
		scheme = "dark"
	}
	return chromedp.Tasks{
		emulation.SetDeviceMetricsOverride(w.wide, w.high, 1, w.wide < 500),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}),
	}
}

// listen records errors of scripts, violations of the content security policy, and requests to other hosts.
func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.problem("exception: " + e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			said, _ := json.Marshal(e.Args)
			b.problem("console: " + string(said))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			b.problem(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		b.mu.Lock()
		b.sent = append(b.sent, e.Request.URL)
		b.mu.Unlock()
		if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" && u.Scheme+"://"+u.Host != b.base {
			b.problem("a request to another host: " + e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.problem("a dialog: " + e.Message)
	}
}

func (b *tab) problem(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

// requests returns the requests of the page, by URL.
func (b *tab) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sent)
}

// expect permits problems that contain a text, for answers that are errors on purpose.
func (b *tab) expect(text string) { b.expected = append(b.expected, text) }

func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, p := range b.problems {
		for _, e := range b.expected {
			if strings.Contains(p, e) {
				continue next
			}
		}
		b.t.Error(p)
	}
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// visit goes to a path of the console.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.base+path), chromedp.WaitReady("main"))
}

// eval returns the value of an expression on the page.
func eval[T any](b *tab, expr string) (v T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expr, &v,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// until waits until an expression on the page is true, across navigations.
func (b *tab) until(what, expr string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, testlimit.Wait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var is bool
		err := chromedp.Run(ctx, chromedp.Evaluate("Boolean("+expr+")", &is))
		if err == nil && is {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("never %s (%v); the page says: %.600s", what, err, b.text())
		}
	}
}

func (b *tab) text() string { return eval[string](b, "document.body.innerText") }

// shoot takes a picture of the whole page.
func (b *tab) shoot(file string) {
	var picture []byte
	if err := chromedp.Run(b, chromedp.FullScreenshot(&picture, 100)); err != nil {
		b.t.Logf("no screenshot: %v", err)
		return
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, picture, 0o644)); err != nil {
		b.t.Error(err)
	}
}

// axe fails the test with each violation that axe-core finds.
func (b *tab) axe(what string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(axeSource(b.t), nil))
	eval[bool](b, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => // painted as it is looked at
		Promise.all(document.getAnimations().map(a => a.finished)).then(() => done(true)))))`)
	type violation struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	for _, v := range eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`) {
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			b.t.Errorf("%s: %s: %s\n%.300s\n%s", what, v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

// axeSource returns axe-core as hack/setup-tests.sh has installed it.
func axeSource(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(cache, "fairlead", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("axe-core is missing: make setup-tests: %v", err)
	}
	return string(script) + "\n;undefined"
}

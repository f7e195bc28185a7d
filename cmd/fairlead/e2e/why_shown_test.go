package e2e_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// shown is the expected answer about an object, in the terminal and on the page.
type shown struct {
	reason string
	object string // argument of the command
	page   string // the path of the page
	// head is in the first line of the terminal or before its first cause. title is in the heading of the page.
	head, title string
	first       []string // parts of the first cause
	later       []string // parts of the causes after it
}

// Headlines of answers.
const (
	stuckHead, stuckTitle   = "makes no progress:", "Why it makes no progress"
	failedHead, failedTitle = "Failed: it ended at", "Why it failed"
)

// shows waits until both the terminal and the page give an answer.
func (p patient) shows(want shown) {
	p.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, out, errs := fairlead(p.t, "why", want.object, "-n", p.namespace, "--url", "http://"+p.address, "--token",
			p.token)
		page := p.visit(want.page)
		faults := append(want.faults("terminal", terminalAnswer(out), want.head),
			want.faults("page", pageAnswer(page), want.title)...)
		if len(faults) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			p.t.Fatalf("%s: %s (%s)\nterminal: %s%s\npage: %s", want.object, strings.Join(faults, "; "), want.reason,
				out, errs,
				plainText(page))
		}
	}
}

// answerText is an answer in parts, without marks and line breaks.
type answerText struct{ head, first, later string }

func (want shown) faults(where string, got answerText, head string) (all []string) {
	lacks := func(part, text string) {
		if !strings.Contains(text, part) {
			all = append(all, fmt.Sprintf("the %s does not contain %q", where, part))
		}
	}
	lacks(head, got.head)
	for _, part := range want.first {
		lacks(part, got.first)
	}
	for _, part := range want.later {
		lacks(part, got.later)
	}
	if strings.Contains(got.head+got.first, "Nothing is wrong") {
		all = append(all, "the "+where+" says that nothing is wrong")
	}
	return all
}

var (
	secondCause = regexp.MustCompile(`\n2\. `)
	heading     = regexp.MustCompile(`(?s)<h2 id="h-why">(.*?)</h2>`)
	causeItem   = regexp.MustCompile(`(?s)<li class="cause.*?</li>`)
	mark        = regexp.MustCompile(`<[^>]*>`)
	blank       = regexp.MustCompile(`\s+`)
)

func terminalAnswer(out string) (a answerText) {
	a.first = out
	if at := secondCause.FindStringIndex(out); at != nil {
		a.first, a.later = out[:at[0]], blank.ReplaceAllString(out[at[0]:], " ")
	}
	a.first = blank.ReplaceAllString(a.first, " ")
	a.head = a.first // a short answer has its headline in the line of its cause
	return a
}

func pageAnswer(page string) (a answerText) {
	if title := heading.FindString(page); title != "" {
		a.head = plainText(title)
	}
	if causes := causeItem.FindAllString(page, -1); len(causes) > 0 {
		a.first, a.later = plainText(causes[0]), plainText(strings.Join(causes[1:], " "))
	}
	return a
}

// plainText returns the text that a browser shows of HTML.
func plainText(page string) string {
	return strings.TrimSpace(blank.ReplaceAllString(html.UnescapeString(mark.ReplaceAllString(page, " ")), " "))
}

// visit returns a page of the console.
func (p patient) visit(path string) string {
	p.t.Helper()
	q, err := http.NewRequestWithContext(p.ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.token != "" {
		q.Header.Set("Authorization", "Bearer "+p.token)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(body)
}

// of returns the expected answer about the operation of an app.
func (p patient) of(id, reason string) shown {
	return shown{
		reason: reason, object: "operation/app/" + id, head: stuckHead, title: stuckTitle,
		page: "/console/operations/" + p.namespace + "/" + v1alpha1.OperationName("app", id),
	}
}

func (s *site) edit(hook, patch string) {
	s.t.Helper()
	if _, err := call.Do(s.ctx, s.calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: s.namespace,
		Name: hook, PatchType: types.MergePatchType, Body: []byte(patch),
	}, call.Policy{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestWhyIsShown creates situations in which operations are stuck or have failed. The command and the page give the
// same correct first answer.
func TestWhyIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	release, held := make(chan struct{}), make(chan struct{}, 100)
	defer close(release)
	s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hold":
			held <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "/html", "/field":
			w.Header().Set("Location", "/jobs"+r.URL.Path)
			w.WriteHeader(http.StatusAccepted)
		case "/jobs/html":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>Sign in")
		case "/jobs/field", "/state":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"state":"running"}`)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/wrong":
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	hour := metav1.Duration{Duration: 300 * time.Hour}
	rarely := func(w *v1alpha1.WebhookSpec) { w.Retry.InitialInterval, w.Retry.MaxInterval = hour, hour }
	polled := func(w *v1alpha1.WebhookSpec) { w.Mode, w.Poll.Interval.Duration = v1alpha1.ModeAsync, 10*time.Minute }
	s.webhook("fine", "/fine", nil)
	s.webhook("wrong", "/wrong", nil)
	s.webhook("broken", "/broken", rarely)
	s.webhook("edited", "/broken", rarely)
	s.webhook("one", "/hold", func(w *v1alpha1.WebhookSpec) { w.Concurrency = 1 })
	s.webhook("silent", "/hold", func(w *v1alpha1.WebhookSpec) {
		w.RequestTimeout.Duration, w.Retry.MaxInterval.Duration = 3*time.Second, 50*time.Millisecond
	})
	s.webhook("dead", "/broken", func(w *v1alpha1.WebhookSpec) {
		w.Breaker, w.Retry.MaxAttempts = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: hour}, 1
	})
	s.webhook("html", "/html", func(w *v1alpha1.WebhookSpec) { polled(w); w.Poll.Interval.Duration = time.Second })
	s.webhook("field", "/field", func(w *v1alpha1.WebhookSpec) {
		polled(w)
		w.Poll.Interval.Duration, w.Poll.Succeeded = time.Second, "response.body.done"
	})
	s.webhook("judged", "/state", func(w *v1alpha1.WebhookSpec) { w.Response.Success = "response.body.done" })
	p := patient{s, <-s.controller(s.kubeconfig).address, s.reader("sees", "operations", "webhooks")}

	s.asks("holder", operations.Request{Webhooks: []string{"one"}})
	<-held // it holds the only slot
	for id, r := range map[string]operations.Request{
		"silent": {Webhooks: []string{"silent"}}, "failed": {Webhooks: []string{"wrong"}},
		"html":   {Webhooks: []string{"html"}},
		"edited": {Webhooks: []string{"edited"}}, "full": {Webhooks: []string{"one"}},
		"field": {Webhooks: []string{"field"}},
		"undone": {
			Webhooks:   []string{"fine", "wrong"},
			Compensate: []string{"broken"},
		}, "judged": {Webhooks: []string{"judged"}},
		"left": {
			Webhooks:   []string{"fine", "wrong"},
			Compensate: []string{"wrong"},
		}, "dead": {Webhooks: []string{"dead"}},
	} {
		s.asks(id, r)
	}
	answer := func(id, reason string, parts ...string) {
		t.Helper()
		want := p.of(id, reason)
		want.first = parts
		p.shows(want)
	}
	failed := func(id, reason string, parts ...string) {
		t.Helper()
		want := p.of(id, reason)
		want.head, want.title, want.first = failedHead, failedTitle, append(parts, "it ended at")
		p.shows(want)
	}
	answer("silent", "A receiver accepts and never answers.", "BackOff", "no answer within 3s", "requestTimeout")
	failed("failed", "An operation has failed.", "with reason WebhookFailed", "answered 400")
	answer("html", "A poll is answered with HTML.", "BackOff",
		"neither poll.succeeded nor poll.failed holds: answered 200 (text/html): <html>Sign in", "spec.poll.failed")
	answer("field", "An expression of the Webhook does not fit the answers of polls.", "BackOff",
		"spec.poll.succeeded of webhook field cannot be evaluated", "Correct spec.poll.succeeded of Webhook field")
	failed("judged", "An expression of the Webhook does not fit the answer to the call.",
		"Correct spec.response.success of Webhook judged")
	answer("undone", "A compensation fails.", "BackOff",
		"webhook wrong failed first: answered 400; then webhook broken (compensation) failed and is called again",
		"purpose")
	failed("left", "A compensation has failed.",
		"webhook wrong failed first: answered 400; then webhook wrong (compensation) failed")

	holder := s.namespace + "/" + v1alpha1.OperationName("app", "holder")
	full := p.of("full", "Concurrency is 1, and another operation has the place.")
	full.first, full.later = []string{"RateLimited", "concurrent calls, concurrency 1"}, []string{
		"operation " + holder + " has held a place of webhook one since", "holder",
	}
	p.shows(full)
	hook := func(name, reason string, parts ...string) {
		t.Helper()
		p.shows(shown{
			reason: reason, object: "webhook/" + name, page: "/console/webhooks/" + s.namespace + "/" + name,
			head: stuckHead, title: "Why it is not called", first: parts,
		})
	}
	hook("dead", "The circuit of a Webhook is open.", "CircuitOpen", "webhook dead failed so often", "500")
	hook("one", "All places of a Webhook are held.", "RateLimited", "concurrency 1")

	answer("edited", "A call has failed.", "BackOff", "answered 500")
	s.edit("edited", `{"spec":{"correlationHeader":"X-Other"}}`)
	answer("edited", "The Webhook was edited meanwhile.", "BackOff",
		"the Webhook was edited since (generation 1 is 2 now): the next attempt uses the new generation")
}

// TestWhyInTerminatingNamespace: the namespace of an operation is being deleted, so the API server issues no token.
func TestWhyInTerminatingNamespace(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("account", "/fine", func(w *v1alpha1.WebhookSpec) {
		withAccount(w)
		w.Retry.MaxInterval.Duration = time.Second
	})
	clients := kubernetes.NewForConfigOrDie(s.config)
	accounts := clients.CoreV1().ServiceAccounts(s.namespace)
	caller := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "caller"}}
	if _, err := accounts.Create(s.ctx, caller, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := patient{s, <-s.controller(s.kubeconfig).address, s.reader("sees", "operations", "webhooks")}
	s.asks("shop", operations.Request{Webhooks: []string{"account"}})
	want := p.of("shop", "The service account is not released.")
	want.first = []string{"NotReleased", "service account caller"}
	p.shows(want)
	if err := clients.CoreV1().Namespaces().Delete(s.ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	release := []byte(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationWebhookAudiences + `":"crm"}}}`)
	if _, err := accounts.Patch(s.ctx, caller.Name, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	want = p.of("shop", "No token can be made in a namespace that is being deleted.")
	want.first = []string{"BackOff", "because it is being terminated", "The namespace is being deleted"}
	p.shows(want)
}

// TestWhyBehindBlockedWorkers blocks writes of some operations, so that no worker is left for another one. The answer
// about that one has the stack of a blocked worker. A step counts as blocked after one minute, and a write fails after
// its sixth try of 10 s, so each blocked operation shows the stack for a few seconds only. Five of them take turns.
func TestWhyBehindBlockedWorkers(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("fine", "/fine", nil)
	var blocked []string
	for i := range 5 {
		blocked = append(blocked, fmt.Sprint("slow", i))
	}
	behind, writes := silentWrites(t, s.config, func(path string) bool {
		return slices.ContainsFunc(blocked, func(id string) bool {
			return strings.Contains(path, "/operations/"+v1alpha1.OperationName("app", id))
		})
	})
	kubeconfig := program.Kubeconfig(t, behind, "")
	p := patient{s, <-s.controller(kubeconfig, "--workers", "1").address, s.reader("sees", "operations", "webhooks")}
	for _, id := range blocked {
		s.asks(id, operations.Request{Webhooks: []string{"fine"}})
	}
	<-writes
	s.asks("last", operations.Request{Webhooks: []string{"fine"}})
	want := p.of("last", "All workers are blocked.")
	want.first = []string{
		"QueuedBehind", "all workers of its namespace are busy", "stack", "goroutine ",
		"The stack is that of the worker",
	}
	p.shows(want)
}

// silentWrites returns the configuration of a proxy to an API server. Writes of some paths get no answer until the test
// ends, and each is announced.
func silentWrites(
	t *testing.T, config *rest.Config, silent func(path string) bool,
) (through *rest.Config, writes <-chan struct{}) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1,
	}
	announced, over := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && silent(r.URL.Path) {
			select {
			case announced <- struct{}{}:
			default:
			}
			select {
			case <-over:
			case <-r.Context().Done():
			}
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(over)
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}, announced
}

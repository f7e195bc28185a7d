package executor_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/why"
)

// asking asks an executor about objects in the namespace of a test.
type asking struct {
	*bench
	e *executor.Executor
}

func (a asking) object(kind, name string) why.Object {
	return why.Object{Group: "fairlead.io", Kind: kind, Namespace: a.Namespace, Name: name}
}

func nameOf(r operations.Resource) string { return v1alpha1.OperationName(r.Type, r.ID) }

// awaitFirst waits until the first cause of a resource's operation has a type, and returns all causes.
func (a asking) awaitFirst(r operations.Resource, want why.Type) why.Answer {
	a.T.Helper()
	return a.awaitFirstOf(a.object("Operation", nameOf(r)), want)
}

func (a asking) awaitFirstOf(of why.Object, want why.Type) why.Answer {
	a.T.Helper()
	var got why.Answer
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got = why.Ask(a.Ctx, of, a.e)
		if len(got.Causes) > 0 && got.Causes[0].Type == want {
			return got
		}
		select {
		case <-tick.C:
		case <-a.Ctx.Done():
			a.T.Fatalf("%s: the first is never %s: %+v", of, want, got)
		}
	}
}

// awaitCauses waits until the causes have these types, in this order, and returns them. An event that wakes a flow
// makes it wait for a worker, so another cause may appear for a moment.
func (a asking) awaitCauses(r operations.Resource, want ...why.Type) (got why.Answer) {
	a.T.Helper()
	a.Eventually(fmt.Sprint("the causes are ", want), func() bool {
		got = why.Ask(a.Ctx, a.object("Operation", nameOf(r)), a.e)
		return slices.EqualFunc(got.Causes, want, func(c why.Cause, of why.Type) bool { return c.Type == of })
	})
	return got
}

// holds fails the test unless a cause has all of these parts.
func (a asking) holds(c why.Cause, about string, message string, evidence ...string) {
	a.T.Helper()
	got := ""
	if c.About != nil {
		got = c.About.String()
	}
	if want := strings.ReplaceAll(about, "NS", a.Namespace); got != want {
		a.T.Errorf("%s is about %q, not %q", c.Type, got, want)
	}
	if !strings.Contains(c.Message, strings.ReplaceAll(message, "NS", a.Namespace)) {
		a.T.Errorf("%s says %q, not %q", c.Type, c.Message, message)
	}
	for _, pair := range evidence {
		key, want, _ := strings.Cut(pair, "=")
		want = strings.ReplaceAll(want, "NS", a.Namespace)
		if got := c.Evidence[key]; !strings.Contains(got, want) || want == "" && got == "" {
			a.T.Errorf("%s: %s is %q, not %q: %v", c.Type, key, got, want, c.Evidence)
		}
	}
	if c.Type != why.Ended && !c.Progress && c.Advice == "" {
		a.T.Errorf("%s has no advice: %+v", c.Type, c)
	}
}

func hours(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Hour} }

// TestWhy creates situations of operations side by side and asks for the cause of each.
func TestWhy(t *testing.T) {
	b := setup(t)
	asked, open := b.gate("/hold")
	defer open()
	hold := b.Receiver.Answer
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch path {
		case "/later":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/broken", "/dead":
			w.WriteHeader(http.StatusInternalServerError)
		case "/poll":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case "/back":
			w.WriteHeader(http.StatusAccepted)
		default:
			hold(w, r, path, n)
		}
	}
	b.Webhook("hold", nil)
	b.Webhook("next", nil)
	b.Webhook("one", func(s *v1alpha1.WebhookSpec) { s.Request.URL, s.Concurrency = b.Receiver.URL+"/hold", 1 })
	b.Webhook("rare", func(s *v1alpha1.WebhookSpec) { s.Request.URL, s.RatePerSecond = b.Receiver.URL+"/hold", 1 })
	b.Webhook("later", nil)
	b.Webhook("broken", func(s *v1alpha1.WebhookSpec) {
		s.Retry.InitialInterval, s.Retry.MaxInterval = hours(300), hours(300)
	})
	b.Webhook("dead", func(s *v1alpha1.WebhookSpec) {
		s.Retry.MaxAttempts, s.Breaker = 1, v1alpha1.WebhookBreaker{Failures: 1, OpenFor: hours(1)}
	})
	b.Webhook("poll", func(s *v1alpha1.WebhookSpec) { s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, hours(1) })
	b.Webhook("back", operationbed.CallbackHook)
	b.Webhook("secret", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
	})
	b.secret("login", map[string]string{"token": "x"})
	a := asking{bench: b}
	b.StartWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(e *executor.Executor) { a.e = e })
	schedule := func(id string, hooks ...string) operations.Resource {
		b.Schedule(operations.Request{Resource: app(id), Webhooks: hooks})
		return app(id)
	}

	b.Schedule(operations.Request{
		Resource: app("holder"), Webhooks: []string{"hold"}, Lock: []operations.Resource{database},
	})
	b.Received(asked)
	for _, id := range []string{"second", "third"} {
		b.Schedule(operations.Request{Resource: app(id), Webhooks: []string{"next"}, Lock: []operations.Resource{database}})
		a.awaitFirst(app(id), why.LockHeld)
	}
	got := a.awaitFirst(app("holder"), why.Parked)
	if a.holds(got.Causes[0], "", "calls webhook hold", "webhook=hold"); got.Stuck || !got.Causes[0].Progress {
		t.Errorf("a call under way is reported as trouble: %+v", got)
	}
	got = a.awaitCauses(app("third"), why.LockHeld, why.LockHeld, why.Parked)
	a.holds(got.Causes[0], "Operation/NS/"+nameOf(app("second")), "app/second, since both need db/7", "resource=db/7")
	if got.Causes[2].Depth != 2 {
		t.Errorf("the holder of the lock is not two operations ahead: %+v", got)
	}
	a.holds(got.Causes[1], "Operation/NS/"+nameOf(app("holder")), "app/holder", "holder=app/holder", "operation")

	got = a.awaitFirst(schedule("missing", "nowhere"), why.WebhookMissing)
	a.holds(got.Causes[0], "Webhook/NS/nowhere", "nowhere does not exist in namespace NS")
	got = a.awaitFirst(schedule("secret", "secret"), why.NotReleased)
	a.holds(got.Causes[0], "Webhook/NS/secret", v1alpha1.LabelWebhookCredentials)
	a.holds(a.awaitFirstOf(a.object("Webhook", "secret"), why.NotReleased).Causes[0], "", "secret login")

	got = a.awaitFirst(schedule("later", "later"), why.RetryAfter)
	a.holds(got.Causes[0], "", "asked to be called again", "status=429", "attempts=1")
	if until := time.Until(got.Causes[0].Until); until < 50*time.Minute || got.Stuck {
		t.Errorf("in %v: %+v", until, got)
	}
	got = a.awaitFirst(schedule("broken", "broken"), why.BackOff)
	a.holds(got.Causes[0], "", "failed and is called again", "status=500", "webhook=broken")
	schedule("poll", "poll")
	got = a.awaitEvidence(app("poll"), "waitsFor", "poll")
	a.holds(got.Causes[0], "", "has accepted the call", "pollURL="+b.Receiver.URL+"/jobs/1", "status=202")
	schedule("back", "back")
	got = a.awaitEvidence(app("back"), "waitsFor", "callback")
	a.holds(got.Causes[0], "", "waits for the callback", "webhook=back")
	if until := time.Until(got.Causes[0].Until); until < 90*time.Minute || until > 2*time.Hour+time.Minute {
		t.Errorf("the wait for the callback lasts %v, not two hours", until)
	}

	b.End(b.Schedule(operations.Request{Resource: app("dead0"), Webhooks: []string{"dead"}}))
	a.holds(a.awaitFirst(app("dead0"), why.Ended).Causes[0], "", "with reason RetriesExhausted", "phase=Failed", "error")
	got = a.awaitFirst(schedule("dead1", "dead"), why.CircuitOpen)
	a.holds(got.Causes[0], "Webhook/NS/dead", "webhook dead", "state=Open", "failures=1", "error=500")
	if c := got.Causes[0]; time.Until(c.Until) < 50*time.Minute || c.Since.IsZero() {
		t.Errorf("open until when: %+v", c)
	}
	a.holds(a.awaitFirstOf(a.object("Webhook", "dead"), why.CircuitOpen).Causes[0], "", "webhook dead")
	b.Eventually("shown by the status", func() bool {
		s := b.Hook("dead").Status.Breaker
		return s != nil && s.State == v1alpha1.BreakerOpen
	})
	if at := a.e.Targets(b.Namespace, "dead"); len(at) != 1 || at[0].Tries != 1 || len(a.e.Targets("", "")) < 5 {
		t.Errorf("%+v", at)
	}

	schedule("one0", "one")
	b.Received(asked)
	got = a.awaitCauses(schedule("one1", "one"), why.RateLimited, why.QueuedBehind)
	a.holds(got.Causes[0], "Webhook/NS/one", "concurrent calls", "bound=concurrency", "most=1", "waiting=1")
	a.holds(got.Causes[1], "Operation/NS/"+nameOf(app("one0")),
		"NS/"+nameOf(app("one0"))+" has held a place of webhook one", "holder=NS/"+nameOf(app("one0")), "held=1")
	if c := got.Causes[1]; c.Since.IsZero() || c.Depth != 1 {
		t.Errorf("the time since which it is held: %+v", c)
	}
	got = a.awaitFirstOf(a.object("Webhook", "one"), why.RateLimited)
	a.holds(got.Causes[0], "", "webhook one", "bound=concurrency")
	a.holds(got.Causes[1], "Operation/NS/"+nameOf(app("one0")), "has held a place")
	for i := range 20 {
		schedule(fmt.Sprint("rare", i), "rare")
	}
	got = a.awaitFirst(app("rare19"), why.RateLimited)
	a.holds(got.Causes[0], "Webhook/NS/rare", "calls per second", "bound=rate", "most=1")

	b.End(b.Schedule(operations.Request{Resource: app("fine"), Webhooks: []string{"next"}}))
	got = a.awaitFirst(app("fine"), why.Ended)
	if a.holds(got.Causes[0], "", "with reason Succeeded", "phase=Success"); got.Stuck {
		t.Errorf("an ended operation is stuck: %+v", got)
	}
	if got := a.e.Why(b.Ctx, a.object("Operation", "nobody")); len(got) != 0 {
		t.Errorf("of a missing object: %+v", got)
	}
	if got := a.e.Why(b.Ctx, a.object("Pod", nameOf(app("fine")))); len(got) != 0 {
		t.Errorf("of another kind: %+v", got)
	}
	for _, hook := range []string{"next", "nowhere"} {
		if got := a.e.Why(b.Ctx, a.object("Webhook", hook)); len(got) != 0 {
			t.Errorf("of webhook %s: %+v", hook, got)
		}
	}

	// An executor that works on none of them gives the same causes, as far as the objects show them.
	idle := asking{b, b.Prepare(b.Config, nil).Executor}
	for r, want := range map[operations.Resource]why.Type{
		app("third"): why.LockHeld, app("missing"): why.WebhookMissing, app("secret"): why.NotReleased,
		app("later"): why.RetryAfter, app("broken"): why.BackOff, app("poll"): why.Parked, app("back"): why.Parked,
		app("fine"):  why.Ended,
		app("dead1"): why.CircuitOpen,
	} {
		idle.awaitFirst(r, want)
	}
	idle.holds(idle.awaitFirst(app("third"), why.LockHeld).Causes[0], "Operation/NS/"+nameOf(app("second")), "app/second")
}

// awaitEvidence waits until the first cause has an evidence.
func (a asking) awaitEvidence(r operations.Resource, key, want string) (got why.Answer) {
	a.T.Helper()
	a.Eventually(key+"="+want, func() bool {
		got = why.Ask(a.Ctx, a.object("Operation", nameOf(r)), a.e)
		return len(got.Causes) > 0 && got.Causes[0].Evidence[key] == want
	})
	return got
}

// TestWhyShare: the cause of a used-up share names the share and its limit.
func TestWhyShare(t *testing.T) {
	for share, change := range map[string]func(*executor.Options){
		"calls under way":  func(o *executor.Options) { o.MaxCalls = 2 },
		"calls per second": func(o *executor.Options) { o.Budget.Calls = 1 },
	} {
		t.Run(share, func(t *testing.T) {
			b := setup(t)
			_, open := b.gate("/hold")
			defer open()
			b.Webhook("hold", nil)
			a := asking{bench: b}
			b.StartWith(change, func(e *executor.Executor) { a.e = e })
			const n = 16
			for i := range n {
				b.Schedule(operations.Request{Resource: app(i), Webhooks: []string{"hold"}})
			}
			c := a.awaitFirst(app(n-1), why.RateLimited).Causes[0]
			a.holds(c, "", "namespace NS has used up its share of "+share, "namespace="+b.Namespace)
			if c.Since.IsZero() {
				t.Error("the start is missing")
			}
		})
	}
}

// TestWhyWrites: an operation whose writes exceed its namespace's share waits for that share.
func TestWhyWrites(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusBadGateway)
	}
	b.Webhook("broken", nil)
	a := asking{bench: b}
	b.StartWith(func(o *executor.Options) { o.Budget.Writes = 1 }, func(e *executor.Executor) { a.e = e })
	a.e.Spend(b.Namespace, 1e6)
	b.Schedule(operations.Request{Webhooks: []string{"broken"}})
	a.holds(a.awaitFirst(shop, why.RateLimited).Causes[0], "", "its share of writes to the API server", "share=writes")
}

// TestWhyConflict: repeated conflicts are a cause while they last, and not afterwards.
func TestWhyConflict(t *testing.T) {
	b := setup(t)
	b.Webhook("next", nil)
	var over atomic.Bool
	busy := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost && !over.Load() {
			b.Touch(nameOf(shop))
		}
		return next.RoundTrip(r)
	})
	a := asking{bench: b}
	b.StartWith(func(o *executor.Options) { o.Calls = busy }, func(e *executor.Executor) { a.e = e })
	op := b.Schedule(operations.Request{Webhooks: []string{"next"}})
	a.holds(a.awaitFirst(shop, why.Conflict).Causes[0], "", "changes the operation again and again", "conflicts", "error")
	over.Store(true)
	b.End(op)
	if got := a.awaitFirst(shop, why.Ended); got.Stuck {
		t.Errorf("there is no conflict any more: %+v", got)
	}
}

// TestWhyEnding: a process that is about to end reports that it starts nothing more. The answer about a deleted object
// names the finalizers that keep it.
func TestWhyEnding(t *testing.T) {
	b := setup(t)
	b.Webhook("next", nil)
	a := asking{bench: b}
	b.StartWith(nil, func(e *executor.Executor) { a.e = e })
	b.End(b.Schedule(operations.Request{Resource: app("kept"), Webhooks: []string{"next"}}))
	b.patchFinalizers(nameOf(app("kept")), `["example.com/keeper"]`)
	b.Delete(nameOf(app("kept")))
	a.holds(a.awaitFirst(app("kept"), why.ForeignFinalizer).Causes[0], "", "example.com/keeper",
		"finalizer=example.com/keeper")
	b.patchFinalizers(nameOf(app("kept")), `null`)

	if err := a.e.Drain(b.Ctx); err != nil {
		t.Fatal(err)
	}
	b.Schedule(operations.Request{Webhooks: []string{"next"}})
	a.holds(a.awaitFirst(shop, why.NotLeading).Causes[0], "", "about to end", "draining=true")
}

func (b *bench) patchFinalizers(name, list string) {
	b.T.Helper()
	if _, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: b.Namespace,
		Name: name, PatchType: types.MergePatchType, Body: fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, list),
	}, call.Policy{}); err != nil {
		b.T.Fatal(err)
	}
}

// TestWhyServer: an API server that refuses writes is a cause, and so is the queue behind a blocked write.
func TestWhyServer(t *testing.T) {
	b := setup(t)
	b.Webhook("next", nil)
	var refuses atomic.Bool
	refuses.Store(true)
	stuck, release := make(chan struct{}, 1), make(chan struct{})
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		switch {
		case r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/operations/"):
		case strings.Contains(r.URL.Path, nameOf(app("slow"))):
			select {
			case stuck <- struct{}{}:
			default:
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case refuses.Load():
			return &http.Response{
				StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: http.NoBody, Request: r,
			}, nil
		}
		return next.RoundTrip(r)
	})
	a := asking{bench: b}
	b.StartWith(func(o *executor.Options) {
		o.Calls, o.Workers, o.Policy = calls, 1, call.Policy{Retries: 1, Base: time.Millisecond, Cap: time.Millisecond}
	}, func(e *executor.Executor) { a.e = e })
	failing := b.Schedule(operations.Request{Webhooks: []string{"next"}})
	got := a.awaitFirst(shop, why.BackOff)
	if a.holds(got.Causes[0], "", "to the API server has failed", "error=500", "tries"); got.Causes[0].Until.IsZero() {
		t.Errorf("the time of the next try is missing: %+v", got)
	}
	refuses.Store(false)
	b.End(failing)
	slow := b.Schedule(operations.Request{Resource: app("slow"), Webhooks: []string{"next"}})
	select {
	case <-stuck:
	case <-b.Ctx.Done():
		t.Fatal("nothing is written")
	}
	last := b.Schedule(operations.Request{Resource: app("last"), Webhooks: []string{"next"}})
	a.holds(a.awaitFirst(app("last"), why.QueuedBehind).Causes[0], "", "workers of its namespace are busy",
		"namespace="+b.Namespace)
	b.Eventually("the stack of the blocked worker is reported", func() bool {
		c := a.awaitFirst(app("last"), why.QueuedBehind).Causes[0]
		return strings.Contains(c.Evidence["stack"], "goroutine ") &&
			strings.Contains(c.Advice, "The stack is that of the worker")
	})
	if got := why.Ask(b.Ctx, a.object("Operation", nameOf(app("slow"))), a.e); len(got.Causes) != 1 ||
		got.Causes[0].Type != why.Parked {
		t.Errorf("of an operation that is being written: %+v", got)
	}
	close(release)
	b.End(slow)
	b.End(last)
}

// nonHolder is a group in which this member holds no slot, and names the holder.
type nonHolder struct{ allShards }

func (nonHolder) Why(namespace string, _ types.UID) []why.Cause {
	return []why.Cause{{Type: why.HeldBy, Message: "b has " + namespace, Advice: "Ask b."}}
}

// TestWhyHeldByAnotherReplica: a replica that does not hold the slot names the holder, and adds what the object shows.
func TestWhyHeldByAnotherReplica(t *testing.T) {
	b := setup(t)
	b.Start(nil)
	b.Schedule(operations.Request{Webhooks: []string{"nowhere"}})
	b.Eventually("waiting", func() bool { return operations.ViewOf(b.Get()).Waiting != "" })
	other := b.Prepare(b.Config, func(o *executor.Options) {
		o.Shards = nonHolder{}
		o.Operations = store.New(store.Options{ // of the slots that it holds: none
			Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind("Operation"), Namespaced: true,
		})
	})
	a := asking{b, other.Executor}
	got := a.awaitFirst(shop, why.HeldBy)
	if len(got.Causes) < 2 || got.Causes[1].Type != why.WebhookMissing {
		t.Fatalf("%+v", got)
	}
	a.holds(got.Causes[0], "", "b has NS")
	a.holds(got.Causes[1], "Webhook/NS/nowhere", "nowhere does not exist")
	if got := a.e.Why(b.Ctx, a.object("Operation", "nobody")); len(got) != 0 {
		t.Errorf("of a missing object: %+v", got)
	}
	if f, ok := a.e.Finalizer("fairlead.io", "Operation"); !ok || f != v1alpha1.Finalizer {
		t.Errorf("its finalizer is %q", f)
	}
	if f, ok := a.e.Finalizer("fairlead.io", "Webhook"); ok {
		t.Errorf("it sets %q on Webhooks", f)
	}
}

// TestWhyQuarantined: the causes of a quarantined Webhook and of one that cannot be used.
func TestWhyQuarantined(t *testing.T) {
	b := setup(t)
	b.Webhook("deadly", nil)
	b.Webhook("wrong", func(s *v1alpha1.WebhookSpec) { s.Response.Success = "response.(" })
	w := b.Hook("deadly")
	w.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionQuarantined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashed,
		ObservedGeneration: w.Generation, Message: "the controller has died 3 times", LastTransitionTime: metav1.Now(),
	}}
	if _, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbUpdate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: b.Namespace,
		Name: "deadly", Subresource: "status", Object: w,
	}, call.Policy{}); err != nil {
		t.Fatal(err)
	}
	a := asking{bench: b}
	b.StartWith(nil, func(e *executor.Executor) { a.e = e })
	b.Schedule(operations.Request{Webhooks: []string{"deadly"}})
	c := a.awaitFirst(shop, why.Quarantined).Causes[0]
	if a.holds(c, "Webhook/NS/deadly", "evaluating it killed the controller", "error=died 3 times"); c.Since.IsZero() {
		t.Error("the start is missing")
	}
	a.holds(a.awaitFirstOf(a.object("Webhook", "deadly"), why.Quarantined).Causes[0], "",
		"evaluating it killed the controller")
	a.holds(a.awaitFirstOf(a.object("Webhook", "wrong"), why.Quarantined).Causes[0], "", "cannot be used",
		"error=response.success")
}

// TestWhyDeadline: the causes of an operation that has failed at its timeout while its notification is repeated.
func TestWhyDeadline(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusBadGateway)
	}
	for _, name := range []string{"broken", "tell"} {
		b.Webhook(name, func(s *v1alpha1.WebhookSpec) {
			s.Retry.InitialInterval, s.Retry.MaxInterval = hours(300), hours(300)
		})
	}
	a := asking{bench: b}
	b.StartWith(nil, func(e *executor.Executor) { a.e = e })
	b.Schedule(operations.Request{Webhooks: []string{"broken"}, Notify: "tell", Timeout: time.Second})
	var got why.Answer
	a.Eventually("notified", func() bool {
		got = why.Ask(b.Ctx, a.object("Operation", nameOf(shop)), a.e)
		return len(got.Causes) == 2 && got.Causes[0].Type == why.BackOff && got.Causes[0].Evidence["webhook"] == "tell"
	})
	a.holds(got.Causes[0], "", "webhook tell (notification)", "purpose=notify", "webhook=tell")
	a.holds(got.Causes[1], "", "so it has failed", "reason="+v1alpha1.ReasonTimedOut)
	if c := got.Causes[1]; c.Type != why.DeadlinePassed || c.Depth != 1 {
		t.Errorf("its cause is %+v", c)
	}
}

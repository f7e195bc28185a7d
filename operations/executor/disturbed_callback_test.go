package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestDisturbedCallbacks reports each outcome several times at once, to two replicas, and sometimes before the receiver
// answers. A third of the replicas' requests fail. Exactly one report of each outcome counts. Its sender learns that,
// and all others learn that an earlier report counted.
func TestDisturbedCallbacks(t *testing.T) {
	seed.Play(t, 3, func(t *testing.T, play uint64) {
		b := setup(t)
		var options executor.Options
		b.Webhook("slow", operationbed.CallbackHook)
		b.Webhook("next", nil)
		b.Start(func(o *executor.Options) {
			o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
			options = *o
		})
		d := &callbackDisturber{disturber: disturber{b: b, seed: play, sent: make(map[string]int)}}
		var takers []*executor.Taker
		for range 2 {
			o := options
			o.Calls = b.Tapped(d.roundTrip)
			o.Policy = call.Policy{
				Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond,
				Budget: &call.Budget{PerSecond: 1000},
			}
			e, err := executor.New(o)
			if err != nil {
				t.Fatal(err)
			}
			takers = append(takers, e.Taker())
		}
		var senders sync.WaitGroup
		reports := &reports{of: make(map[string][]report)}
		b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
			if path != "/slow" {
				return
			}
			id, tok := r.Header.Get("Idempotency-Key"), operationbed.Token(operationbed.CallbackIn(r))
			rnd := seed.Rand(play, id)
			var early sync.WaitGroup
			for i := range 1 + rnd.IntN(3) {
				begin, ctx := senders.Go, b.Ctx
				if rnd.IntN(3) == 0 {
					begin, ctx = early.Go, context.WithValue(ctx, earlyKey{}, true)
				}
				begin(func() { reports.add(id, send(ctx, takers[i%2], tok, i == 0)) })
			}
			early.Wait()
			w.WriteHeader(http.StatusAccepted)
		}
		const n = 12
		for i := range n {
			op := b.Schedule(operations.Request{
				ID:       fmt.Sprint("op", i),
				Resource: operations.Resource{Type: "Application", ID: fmt.Sprint("app", i)}, Webhooks: []string{"slow", "next"},
			})
			ended := b.End(op)
			senders.Wait()
			if problem := reports.check(ended, b.Receiver.Counts(op.EffectiveID())); problem != "" {
				t.Errorf("%s: %s\n%s", op.Name, problem, strings.Join(d.of(op.Name), "\n"))
			}
		}
		t.Logf("%d requests, %d of them disturbed", d.all, d.disturbed)
	})
}

// earlyKey marks the reports that the receiver makes before it answers. The flow cannot continue before that answer.
type earlyKey struct{}

// report is the result of one report.
type report struct {
	succeeded bool
	err       error
	unsure    bool // an earlier try of it failed, so it may have counted
}

// send repeats a report until it gets an answer.
func send(ctx context.Context, taker *executor.Taker, tok string, succeeded bool) report {
	r := report{succeeded: succeeded}
	for {
		r.err = taker.Take(ctx, tok, succeeded, "no")
		if !errors.Is(r.err, disturb.ErrLost) {
			return r
		}
		r.unsure = true
	}
}

type reports struct {
	mu sync.Mutex
	of map[string][]report // by idempotency key
}

func (r *reports) add(key string, got report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[key] = append(r.of[key], got)
}

// check returns what is wrong with the reports of an operation, empty if nothing is.
func (r *reports) check(op *v1alpha1.Operation, called map[string]int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.of[webhook.CallID(op.Namespace, op.EffectiveID(), "slow", webhook.Main)]
	succeeded := op.Status.Phase == v1alpha1.PhaseSuccess
	taken, maybe := 0, 0
	for _, one := range all {
		switch {
		case one.err == nil && one.succeeded != succeeded:
			return fmt.Sprintf("an accepted report did not count: %+v", all)
		case one.err == nil:
			taken++
		case !errors.Is(one.err, operations.ErrCallbackUsed):
			return fmt.Sprintf("%v", one.err)
		case one.unsure && one.succeeded == succeeded:
			maybe++
		}
	}
	if taken > 1 || taken == 0 && maybe == 0 {
		return fmt.Sprintf("%d reports were taken: %+v", taken, all)
	}
	if called["slow"] != 1 || called["next"] != map[bool]int{true: 1}[succeeded] {
		return fmt.Sprintf("calls: %v", called)
	}
	return ""
}

// callbackDisturber lets the flow continue before the sender of a lost answer learns of the loss.
type callbackDisturber struct{ disturber }

func (d *callbackDisturber) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	written := ""
	answer, err := d.disturber.roundTrip(r, disturb.Func(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPut || answer.StatusCode != http.StatusOK {
			return answer, err
		}
		raw, err := io.ReadAll(answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return nil, err
		}
		var h source.Header
		if err := source.Scan(source.JSON, raw, &h); err != nil {
			return nil, err
		}
		written = string(h.ResourceVersion)
		answer.Body = io.NopCloser(strings.NewReader(string(raw)))
		return answer, nil
	}))
	if errors.Is(err, disturb.ErrLost) && written != "" && r.Context().Value(earlyKey{}) == nil {
		_, name, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/status"), "/operations/")
		d.b.Eventually("continued", func() bool { return d.b.version(name) != written })
	}
	return answer, err
}

// version returns the resource version of an Operation.
func (b *bench) version(name string) string {
	answer, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: b.Namespace,
		Name: name,
	}, call.Policy{})
	op := &v1alpha1.Operation{}
	if err == nil {
		err = answer.Into(op)
	}
	if err != nil {
		b.T.Error(err)
	}
	return op.ResourceVersion
}

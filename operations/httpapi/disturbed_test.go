package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestDisturbed lets callers schedule operations, and repeat each request with the same key until it is answered.
// Requests of the callers are cut off before they arrive, are canceled under way, or lose their answers. Requests of
// the server are lost, throttled and refused. Every key becomes one operation, or none if the answer says so.
func TestDisturbed(t *testing.T) {
	seed.Play(t, 2, func(t *testing.T, play uint64) {
		d := &disturber{seed: play, begun: make(map[string]int), accepted: make(map[string]bool)}
		d.api = setupWith(t, func(a *api, o *httpapi.Options) { anonymous(o); d.replace(a, o) })
		var all sync.WaitGroup
		for r := range 6 {
			for c := range 2 {
				all.Go(func() {
					name := fmt.Sprint("app", r, "-", c)
					rnd := seed.Rand(play, name)
					for step := range 4 {
						d.schedule(rnd, fmt.Sprint("app", r), fmt.Sprint(name, "-", step))
					}
				})
			}
		}
		all.Wait()
		d.mu.Lock()
		accepted := slices.Collect(maps.Keys(d.accepted))
		d.mu.Unlock()
		for _, key := range accepted {
			d.eventually(func() bool { return d.count(key) > 0 }) // a request that was cut off may still be under way
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for key, n := range d.begun {
			if n != 1 {
				t.Errorf("FAIRLEAD_SEED=%d: %s was begun %d times", play, key, n)
			}
		}
		t.Logf("%d requests, %d of them disturbed", d.all, d.disturbed)
	})
}

// disturber disturbs requests between the server and the API server, and counts the operations that start.
type disturber struct {
	*api
	seed uint64

	mu             sync.Mutex
	all, disturbed int
	begun          map[string]int
	accepted       map[string]bool
}

// replace gives the server a scheduler whose requests are disturbed.
func (d *disturber) replace(a *api, o *httpapi.Options) {
	t := a.t
	scheduler, err := operations.NewScheduler(operations.Options{
		Config: disturb.Config(a.config, d.roundTrip), Namespace: o.Scheduler.Namespace(),
		Policy: call.Policy{
			Retries: 1, Base: time.Millisecond, Cap: 2 * time.Millisecond,
			Budget: &call.Budget{PerSecond: 1000},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	o.Scheduler = scheduler
}

func (d *disturber) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	d.mu.Lock()
	d.all++
	rnd := rand.New(rand.NewPCG(d.seed, uint64(d.all)))
	fault := rnd.IntN(12)
	if fault < 4 {
		d.disturbed++
	}
	d.mu.Unlock()
	switch fault {
	case 0:
		return nil, errors.New("lost")
	case 1:
		code := []int{
			http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout,
		}[rnd.IntN(4)]
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r},
			nil
	}
	// A request that was cut off still arrives, and is counted.
	answer, err := next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	if op := (&v1alpha1.Operation{}); r.Method != http.MethodGet && answer.StatusCode < 300 &&
		json.Unmarshal(body, op) == nil {
		d.mu.Lock()
		d.begun[op.EffectiveID()]++
		d.mu.Unlock()
	}
	if fault <= 3 {
		return nil, errors.New("answer lost")
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer, nil
}

// schedule requests an operation until it gets an answer, and ends operations that block it.
func (d *disturber) schedule(rnd *rand.Rand, id, key string) {
	body := fmt.Sprintf(`{"operationType":"Update","resourceType":"app","resourceID":%q}`, id)
	for again := 0; d.ctx.Err() == nil; {
		status, shown := d.post(rnd, body, key)
		switch {
		case status == http.StatusAccepted && shown != key:
			d.t.Errorf("FAIRLEAD_SEED=%d: asked for %s, got %s", d.seed, key, shown)
			return
		case status == http.StatusConflict && shown == key:
			d.t.Errorf("FAIRLEAD_SEED=%d: %s stands in its own way", d.seed, key)
			return
		case status == http.StatusAccepted:
			d.mu.Lock()
			d.accepted[key] = true
			d.mu.Unlock()
			if again++; again == 2 { // repeat it after its end, too
				return
			}
			d.end("app-" + id)
		case status == http.StatusConflict:
			d.end("app-" + id)
		case status != 0 &&
			!slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status):
			d.t.Errorf("FAIRLEAD_SEED=%d: %s: status %d", d.seed, key, status)
			return
		}
	}
	d.t.Errorf("FAIRLEAD_SEED=%d: %s is never answered", d.seed, key)
}

func (d *disturber) count(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun[key]
}

// post sends a request that may be cut off, whose status is 0 then. It returns the id of the operation in the answer.
func (d *disturber) post(rnd *rand.Rand, body, key string) (status int, shown string) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	cut := rnd.IntN(4)
	if cut == 0 {
		timer := time.AfterFunc(time.Duration(rnd.IntN(8))*time.Millisecond, cancel)
		defer timer.Stop()
	}
	req, err := http.NewRequestWithContext(ctx, "POST", d.url+"/operations", strings.NewReader(body))
	if err != nil {
		d.t.Error(err)
		return 0, ""
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || cut == 1 { // the answer was lost
		return 0, ""
	}
	var (
		v operations.View
		p httpapi.Problem
	)
	switch {
	case resp.StatusCode < 300:
		err = json.Unmarshal(raw, &v)
	case resp.Header.Get("Content-Type") != "application/problem+json", resp.StatusCode == http.StatusServiceUnavailable &&
		resp.Header.Get("Retry-After") == "":
		err = errors.New("no problem document, or no Retry-After")
	default:
		err = json.Unmarshal(raw, &p)
	}
	if err != nil || resp.StatusCode >= 300 && p.Status != resp.StatusCode {
		d.t.Errorf("%v: %d %s", err, resp.StatusCode, raw)
	}
	return resp.StatusCode, v.OperationID + p.OperationID
}

// end ends the unfinished operation of that name, if there is one.
func (d *disturber) end(name string) {
	request := call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.OperationsResource, Kind: "Operation",
		Namespace: d.namespace, Name: name,
	}
	got, err := call.Do(d.ctx, d.calls, request, call.Policy{})
	op := &v1alpha1.Operation{}
	if err == nil {
		err = got.Into(op)
	}
	if err != nil {
		d.t.Error(err)
		return
	}
	if op.Terminal() {
		return
	}
	s := &op.Status
	now := v1alpha1.FinishedOperation{}.FinishedAt
	now.Time = time.Now()
	if s.OperationID != "" {
		s.History = append(s.History, v1alpha1.FinishedOperation{
			OperationID: s.OperationID, OperationType: s.OperationType, Phase: s.Phase, FinishedAt: *s.FinishedAt,
		})
	}
	s.OperationID, s.OperationType, s.Phase, s.FinishedAt = op.EffectiveID(), op.Spec.OperationType, v1alpha1.PhaseSuccess,
		&now
	request.Verb, request.Subresource, request.Object = call.VerbUpdate, "status", op
	_, _ = call.Do(d.ctx, d.calls, request, call.Policy{}) // another caller may have ended it first
}

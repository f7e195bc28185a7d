package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// victim sends ordinary operations to a good receiver at a fixed interval, without waiting for earlier ones. It
// measures the time from the creation of each until its success is known here. Beside each it measures the reference.
type victim struct {
	s         *stage
	namespace string
	calls     *call.Client
	clients   kubernetes.Interface
	objects   dynamic.Interface
	receiver  *httptest.Server
	token     string
	web       *http.Client
	reference *reference

	mu      sync.Mutex
	started map[string]sample // unfinished operations, by name
	ended   map[string]string // by name: how it ended
	took    []sample
	since   time.Time      // earlier operations are not measured
	effects map[string]int // by idempotency key
	changed chan struct{}  // closed and replaced whenever an operation ends
	n       int
}

// sample is the latency of one operation, or of the reference at the same moment.
type sample struct {
	kind      string
	began     time.Time
	operation time.Duration
}

// Webhooks of the victim, and other measured kinds.
const (
	hookGood      = "good"
	hookCallback  = "callback" // its receiver reports by callback
	kindReference = "reference"
	kindStream    = "stream"
)

func newVictim(s *stage) *victim {
	s.t.Helper()
	config := s.identity("victim", "tenant")
	v := &victim{
		s: s, namespace: "victim", calls: s.caller(config), clients: kubernetes.NewForConfigOrDie(config),
		objects: dynamic.NewForConfigOrDie(config),
		token:   config.BearerToken, started: map[string]sample{}, ended: map[string]string{}, effects: map[string]int{},
		changed: make(chan struct{}),
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	v.web = &http.Client{Transport: transport}
	s.t.Cleanup(transport.CloseIdleConnections)
	var answering sync.WaitGroup
	s.t.Cleanup(answering.Wait)
	v.receiver = serve(s.t, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ CallbackURL string }
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		v.mu.Lock()
		v.effects[r.Header.Get("Idempotency-Key")]++
		v.mu.Unlock()
		if json.Unmarshal(raw, &body) == nil && body.CallbackURL != "" {
			answering.Go(func() { v.callBack(body.CallbackURL) })
		}
	})
	for name, change := range map[string]func(*v1alpha1.WebhookSpec){
		hookGood: nil,
		hookCallback: func(w *v1alpha1.WebhookSpec) {
			body := `{"callbackURL": "{{.CallbackURL}}"}`
			w.Mode, w.Request.Body = v1alpha1.ModeAsyncCallback, &body
		},
	} {
		if err := createWebhook(s.ctx, v.calls, v.namespace, name, v.receiver.URL, change); err != nil {
			s.t.Fatal(err)
		}
	}
	v.reference = newReference(v, config)
	go v.follow()
	return v
}

// callBack reports a success as receivers do, and retries after a moment if that fails.
func (v *victim) callBack(url string) {
	for {
		req, err := http.NewRequestWithContext(v.s.ctx, http.MethodPost, url, strings.NewReader(`{"status": "SUCCEEDED"}`))
		if err != nil {
			return
		}
		resp, err := v.web.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is reused
			resp.Body.Close()
			if resp.StatusCode < 300 || resp.StatusCode == http.StatusConflict {
				return
			}
		}
		if !pause(v.s.ctx, 100*time.Millisecond) {
			return
		}
	}
}

// follow records the ends of operations until the test ends.
func (v *victim) follow() {
	for v.s.ctx.Err() == nil {
		events, err := v.objects.Resource(v1alpha1.OperationsResource).Namespace(v.namespace).Watch(v.s.ctx,
			metav1.ListOptions{})
		if err != nil {
			pause(v.s.ctx, 50*time.Millisecond)
			continue
		}
		for event := range events.ResultChan() {
			if op, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Deleted {
				v.heard(op)
			}
		}
		events.Stop()
	}
}

func (v *victim) heard(op *unstructured.Unstructured) {
	phase, _, _ := unstructured.NestedString(op.Object, "status", "phase")
	if phase == "" || phase == string(v1alpha1.PhaseInProgress) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	began, waited := v.started[op.GetName()]
	if !waited {
		return
	}
	delete(v.started, op.GetName())
	v.ended[op.GetName()] = phase
	began.operation = time.Since(began.began)
	v.took = append(v.took, began)
	close(v.changed)
	v.changed = make(chan struct{})
}

// send creates one operation.
func (v *victim) send(ctx context.Context, hook string) error {
	v.mu.Lock()
	v.n++
	id := fmt.Sprint("v", v.n)
	name := v1alpha1.OperationName("app", id)
	v.started[name] = sample{kind: hook, began: time.Now()}
	v.mu.Unlock()
	err := createOperation(ctx, v.calls, v.namespace, id, call.Policy{},
		func(spec *v1alpha1.OperationSpec) { spec.WebhookIDs = []string{hook} })
	if err != nil {
		v.mu.Lock()
		delete(v.started, name)
		v.mu.Unlock()
	}
	return err
}

func (v *victim) note(kind string, began time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !began.Before(v.since) {
		v.took = append(v.took, sample{kind, began, time.Since(began)})
	}
}

// listenTo opens an event stream of one of the victim's operations and reads the first event.
func (v *victim) listenTo(ctx context.Context, address string) error {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+address+"/operations/app/v1/events?namespace="+v.namespace, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+v.token)
	resp, err := v.web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	line := make([]byte, 7)
	if _, err := io.ReadFull(resp.Body, line); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("event stream: status %d, %q (%w)", resp.StatusCode, line, err)
	}
	v.note(kindStream, began)
	return nil
}

// forget drops all measurements.
func (v *victim) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.took, v.since, v.effects = nil, time.Now(), map[string]int{}
	clear(v.ended)
}

// live sends an operation every interval, of one kind after the other, until the context ends. Then it waits at most
// patience for their ends, and returns all latencies. An unfinished operation counts with its time so far.
func (v *victim) live(
	ctx context.Context, interval, patience time.Duration,
) (took map[string][]time.Duration, problems []string) {
	var mu sync.Mutex
	var sending sync.WaitGroup
	tick := time.NewTicker(interval)
	defer tick.Stop()
	do := func(what string, f func(context.Context) error) {
		sending.Go(func() {
			bounded, cancel := context.WithTimeout(v.s.ctx, patience+10*time.Second)
			defer cancel()
			if err := f(bounded); err != nil {
				mu.Lock()
				problems = append(problems, what+": "+err.Error())
				mu.Unlock()
			}
		})
	}
	v.mu.Lock()
	marked := 10_000 * v.n // so that names of marks are not reused
	v.mu.Unlock()
	for i := 0; ctx.Err() == nil; i++ {
		hook := []string{hookGood, hookCallback}[i%2]
		do(hook, func(ctx context.Context) error { return v.send(ctx, hook) })
		marked++
		n := marked
		do(kindReference, func(ctx context.Context) error { return v.reference.begin(ctx, n) })
		if i > 0 && i%4 == 0 { // the first operation must exist
			do(kindStream, func(ctx context.Context) error { return v.listenTo(ctx, v.s.controller.address) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	sending.Wait()
	v.await(patience)
	v.mu.Lock()
	defer v.mu.Unlock()
	took = map[string][]time.Duration{}
	for _, s := range v.took {
		took[s.kind] = append(took[s.kind], s.operation)
	}
	unfinished := 0
	for _, s := range v.started {
		took[s.kind] = append(took[s.kind], time.Since(s.began))
		unfinished++
	}
	if unfinished > 0 {
		problems = append(problems, fmt.Sprint(unfinished, " operations have not ended"))
	}
	clear(v.started)
	for name, phase := range v.ended {
		if phase != string(v1alpha1.PhaseSuccess) {
			problems = append(problems, "operation "+name+" ended as "+phase)
		}
	}
	slices.Sort(problems)
	return took, problems
}

// await waits until all operations have ended, for at most d.
func (v *victim) await(d time.Duration) {
	ctx, cancel := context.WithTimeout(v.s.ctx, d)
	defer cancel()
	for {
		v.mu.Lock()
		left, changed := len(v.started), v.changed
		v.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

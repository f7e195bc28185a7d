package executor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// recorded returns an Operation for which Events are recorded.
func recorded(namespace string, i int, phase v1alpha1.Phase) *v1alpha1.Operation {
	op := &v1alpha1.Operation{}
	op.Namespace, op.Name, op.UID = namespace, fmt.Sprint("app-", i), types.UID(fmt.Sprint("uid-", i))
	op.Status.OperationID, op.Status.Phase = string(op.UID), phase
	return op
}

// events returns a recorder, and a function that returns how often each result occurred.
func (b *bench) events(config *rest.Config) (*executor.Events, func() map[string]int) {
	b.T.Helper()
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(calls.Close)
	e, err := executor.NewEvents(calls)
	if err != nil {
		b.T.Fatal(err)
	}
	closed := sync.OnceFunc(e.Close)
	b.T.Cleanup(closed)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(e); err != nil {
		b.T.Fatal(err)
	}
	return e, func() map[string]int {
		families, err := registry.Gather()
		if err != nil {
			b.T.Fatal(err)
		}
		out := map[string]int{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				out[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
			}
		}
		return out
	}
}

// TestEventsUnderLoad records more Events than fit while the API server does not answer. No caller blocks, ends are
// written first, and dropped Events are counted.
func TestEventsUnderLoad(t *testing.T) {
	b := setup(t)
	open := make(chan struct{})
	var arrived atomic.Int32
	var mu sync.Mutex
	var order []string
	config := disturb.Config(b.Config, func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		arrived.Add(1)
		select {
		case <-open:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		var event corev1.Event
		if err := json.Unmarshal(body, &event); err != nil {
			return nil, err
		}
		mu.Lock()
		order = append(order, event.Reason)
		mu.Unlock()
		return &http.Response{
			StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(string(body))),
		}, nil
	})
	config.QPS, config.Burst = 1e6, 1e6
	e, results := b.events(config)
	const n = 6000
	for i := range n {
		e.Operation(recorded("ns", i, v1alpha1.PhaseInProgress), false, "Started", "started")
	}
	// Later Events cannot be merged into an end that a writer takes at once, so wait until all writers are blocked.
	b.Eventually("held by the API server", func() bool { return arrived.Load() == 4 })
	for i := range n {
		e.Operation(recorded("ns", i, v1alpha1.PhaseSuccess), false, "Succeeded", "succeeded")
		e.Operation(recorded("ns", 0, v1alpha1.PhaseSuccess), false, "Succeeded", "succeeded") // merged with the first
	}
	close(open)
	b.Eventually("written", func() bool { r := results(); return r["written"]+r["dropped"] >= 2*n })
	got := results()
	if want := 4096 + 1024; got["written"] < want || got["written"] > want+4 || got["written"]+got["dropped"] != 2*n ||
		got["failed"] != 0 {
		t.Errorf("results: %v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	early := 0
	for _, reason := range order[:4096+4] {
		if reason == "Started" {
			early++
		}
	}
	if early > 2*4 { // four that the writers held already, and four that they took beside the last ends
		t.Errorf("%d starts were written before the last end", early)
	}
}

// TestEqualEvents: a repeated Event updates the first one with a new time.
func TestEqualEvents(t *testing.T) {
	b := setup(t)
	e, results := b.events(b.Config)
	long := recorded(b.Namespace, 0, v1alpha1.PhaseFailed)
	long.Name = strings.Repeat("x", 199) + "-" + strings.Repeat("y", 40)
	for i := range 3 {
		e.Operation(long, true, "TimedOut", "not finished")
		b.Eventually("written", func() bool { return results()["written"] == i+1 })
	}
	list, err := kubernetes.NewForConfigOrDie(b.Config).CoreV1().Events(b.Namespace).List(b.Ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Type != "Warning" || list.Items[0].InvolvedObject.Name != long.Name {
		t.Errorf("events: %+v", list.Items)
	}
	if diff := cmp.Diff(map[string]int{"written": 3}, results()); diff != "" {
		t.Errorf("results, -want +got:\n%s", diff)
	}
}

// TestLastEvents: Events recorded just before the recorder ends are written.
func TestLastEvents(t *testing.T) {
	b := setup(t)
	e, results := b.events(b.Config)
	stop := b.Start(func(o *executor.Options) { o.Recorder = e })
	const n = 20
	for i := range n {
		b.Run(operations.Request{Resource: operations.Resource{Type: "app", ID: fmt.Sprint(i)}})
	}
	stop()
	e.Operation(recorded(b.Namespace, 1, v1alpha1.PhaseSuccess), false, "Succeeded", "at the last moment")
	begun := time.Now()
	e.Close()
	late := time.Since(begun) >= 2*time.Second // the rest is dropped
	list, err := kubernetes.NewForConfigOrDie(b.Config).CoreV1().Events(b.Namespace).List(b.Ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for _, event := range list.Items {
		said[event.Reason]++
	}
	if !late && (said["Succeeded"] < n || results()["failed"] > 0) {
		t.Errorf("written: %v of %v", said, results())
	}
	dropped := results()["dropped"]
	e.Operation(recorded(b.Namespace, 2, v1alpha1.PhaseSuccess), false, "Succeeded", "too late")
	if results()["dropped"] != dropped+1 {
		t.Errorf("after the end: %v", results())
	}
}

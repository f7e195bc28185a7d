package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/seed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is an API server in this process, with a kubelet and an audience. It records what happens to pods. All of it
// works by the fake clock of testing/synctest.
type stage struct {
	t      *testing.T
	cfg    *rest.Config
	a      *audience
	prefix string
	watch  cache.Option
	record *record
}

func setUp(t *testing.T, namespaces int, delay time.Duration) *stage {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{
		Pipe: true,
		Resources: append(apiserver.DefaultResources(), apiserver.Resource{
			Group: group.Group, Version: group.Version, Resource: "domains", Kind: "Domain", Namespaced: true,
			Subresources: []string{"status"},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	s := &stage{t: t, cfg: server.Config(), prefix: "domains"}
	var names []string
	for i := range namespaces {
		names = append(names, namespaceName(s.prefix, i))
	}
	s.watch = cache.Namespaces(names...)
	if s.a, err = newAudience(s.cfg, s.watch); err != nil {
		t.Fatal(err)
	}
	bounded, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	s.record = newRecord(t, s.cfg, s.prefix)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.a.rt.Run, newKubelet(s.cfg, delay, s.watch).rt.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := s.a.rt.WaitSynced(bounded); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs an operator until ctx ends; wait waits for its end.
func (s *stage) run(ctx context.Context, cfg *rest.Config, opt operatorOptions) (o *fairlead.Runtime, wait func()) {
	s.t.Helper()
	opt.watch = []cache.Option{s.watch}
	o, err := newOperator(cfg, opt)
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	return o, sync.OnceFunc(func() {
		if err := <-done; err != nil {
			s.t.Errorf("operator: %v", err)
		}
	})
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// record sees every event of the pods of a test, in the order in which they happened.
type record struct {
	mu       sync.Mutex
	made     map[string]map[string]bool // pod and revision → uids
	ready    map[string]bool            // pod and revision
	problems []string
}

func newRecord(t *testing.T, cfg *rest.Config, prefix string) *record {
	t.Helper()
	r := &record{made: map[string]map[string]bool{}, ready: map[string]bool{}}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	list, err := clients.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := clients.CoreV1().Pods("").Watch(ctx,
		metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: domainLabel})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && strings.HasPrefix(pod.Namespace, prefix) {
				r.note(e.Type, pod)
			}
		}
	})
	t.Cleanup(func() { w.Stop(); cancel(); wg.Wait() })
	return r
}

// note checks the rules: a server is started once for each revision, and a managed one when its admin server is ready.
func (r *record) note(typ watch.EventType, pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	revision := pod.Labels[revisionLabel]
	id := pod.Namespace + "/" + pod.Name + "@" + revision
	switch typ {
	case watch.Added:
		if r.made[id] == nil {
			r.made[id] = map[string]bool{}
		}
		r.made[id][string(pod.UID)] = true
		if len(r.made[id]) > 1 {
			r.problems = append(r.problems, id+" was started twice")
		}
		admin := pod.Namespace + "/" + pod.Labels[domainLabel] + "-admin@" + revision
		if id != admin && !r.ready[admin] {
			r.problems = append(r.problems, id+" was started before its admin server was ready")
		}
	case watch.Modified:
		if podReady(pod) {
			r.ready[id] = true
		}
	}
}

func (r *record) check(t *testing.T, servers int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.problems {
		t.Error(p)
	}
	if len(r.made) < servers {
		t.Errorf("%d servers were started, want at least %d", len(r.made), servers)
	}
}

// oneAtATime checks F1: while a step of a fiber runs, none of another fiber of the same key does.
type oneAtATime struct {
	mu       sync.Mutex
	running  map[string]map[uint64]int
	problems []string
}

func (m *oneAtATime) hook(h flow.Handle, path string, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = map[string]map[uint64]int{}
	}
	of := m.running[h.Key()]
	if of == nil {
		of = map[uint64]int{}
		m.running[h.Key()] = of
	}
	if after {
		if of[h.Epoch()]--; of[h.Epoch()] == 0 {
			delete(of, h.Epoch())
		}
		return
	}
	of[h.Epoch()]++
	if len(of) > 1 {
		m.problems = append(m.problems, fmt.Sprintf("%s of %s runs beside an older fiber", path, h.Key()))
	}
}

// mortal is a configuration whose requests are refused once the process that has it was killed; answers on the wire are
// lost. What the server was sent it executes nevertheless: landed waits for that, when the process makes no more
// requests.
func mortal(cfg *rest.Config) (_ *rest.Config, kill func(), killed func() bool, landed func()) {
	var dead atomic.Bool
	var writes sync.WaitGroup
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper{next, func(r *http.Request) (*http.Response, error) {
			if dead.Load() {
				return refusal(r), nil
			}
			send := next.RoundTrip
			if r.Method != http.MethodGet {
				send = func(r *http.Request) (*http.Response, error) { return sendToTheEnd(&writes, next, r) }
			}
			resp, err := send(r)
			if err == nil && dead.Load() {
				resp.Body.Close()
				return refusal(r), nil
			}
			return resp, err
		}}
	})
	return cfg, func() { dead.Store(true) }, dead.Load, writes.Wait
}

// sendToTheEnd sends a request that is answered also when its context has ended, only to nobody.
func sendToTheEnd(sending *sync.WaitGroup, next http.RoundTripper, r *http.Request) (*http.Response, error) {
	type answer struct {
		resp *http.Response
		err  error
	}
	answers, ctx := make(chan answer), r.Context()
	sending.Go(func() {
		resp, err := next.RoundTrip(r.WithContext(context.WithoutCancel(ctx)))
		select {
		case answers <- answer{resp, err}:
		case <-ctx.Done():
			if err == nil {
				resp.Body.Close()
			}
		}
	})
	select {
	case a := <-answers:
		return a.resp, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// refusal is an answer after which nothing is tried again, so that what a dead process would not do is over soon.
func refusal(r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusForbidden)
	resp := w.Result()
	resp.Request = r
	return resp
}

// roundTripper is a transport before another, whose connections are found through it, and closed.
type roundTripper struct {
	next http.RoundTripper
	do   func(*http.Request) (*http.Response, error)
}

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return t.do(r) }

func (t roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

// The operator is killed again and again at random steps, before or after their effect, while domains come up and while
// they roll. The next one goes on where the last position was saved, and no server is started twice.
func TestKilledInMidFlow(t *testing.T) {
	t.Parallel()
	seed.Play(t, 1, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			s := setUp(t, 2, 40*time.Millisecond)
			keys, err := s.a.create(t.Context(), s.prefix, 2, 2, DomainSpec{Servers: 2, Image: "server:1"})
			s.must(err)
			defer func() { s.must(s.a.remove(context.Background(), keys)) }()
			s.untilDone(rnd, keys, 4)
			s.record.check(t, len(keys)*3)
			s.must(s.a.change(t.Context(), keys, func(d *DomainSpec) { d.RestartVersion = "2" }))
			s.untilDone(rnd, keys, 4)
			s.record.check(t, len(keys)*6)
		})
	})
}

// untilDone runs operators, of which the first ones are killed, until all domains are as they should be.
func (s *stage) untilDone(rnd *rand.Rand, keys []client.Key, kills int) {
	s.t.Helper()
	for n := range kills + 1 {
		saved := map[string]*Domain{}
		for _, key := range keys {
			var d Domain
			s.must(s.a.rt.Client().Live().Get(s.t.Context(), key, &d))
			saved[fiberKey(key)] = &d
		}
		cfg, kill, killed, landed := mortal(s.cfg)
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		var steps atomic.Int64
		at, after := int64(-1), rnd.IntN(2) == 0
		if n < kills {
			at = 2 + rnd.Int64N(40)
		}
		var mu sync.Mutex
		met := map[string]bool{}
		_, wait := s.run(ctx, cfg, operatorOptions{
			engine: flow.EngineOptions{Hook: func(_ flow.Handle, path string, isAfter bool) {
				if isAfter == after && steps.Add(1) == at {
					s.t.Logf("killed at step %d, %s, after it %v", at, path, isAfter)
					kill()
					cancel()
				}
			}},
			onEnd: func(_ *Domain, r flow.Result) {
				mu.Lock()
				defer mu.Unlock()
				i := r.Handle.Info()
				d := saved[i.Key]
				if met[i.Key] || !r.Begun || len(i.Trail) == 0 || i.Dropped > 0 {
					return
				}
				met[i.Key] = true
				p := d.Status.Flow
				if atRest(d) || p.Generation != d.Generation {
					return
				}
				if first := i.Trail[0].Step; first != p.Step {
					s.t.Errorf("%s went on at %s, was saved at %s: %v", i.Key, first, p.Step, i.Trail)
				}
			},
		})
		err := s.a.awaitAvailable(ctx, keys, len(keys))
		cancel()
		wait()
		landed()
		if err == nil && !killed() {
			return
		}
		if !killed() {
			s.t.Fatal(err)
		}
	}
	s.t.Fatal("the domains are not done though the last operator was not killed")
}

// A change of the spec preempts the fiber that works on the former one, whatever it is doing, and never runs beside it.
func TestPreemptedByTheSpec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, 1, time.Second) // long enough for all to be under way together
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var one oneAtATime
		var mu sync.Mutex
		preempted := 0
		_, wait := s.run(ctx, s.cfg, operatorOptions{
			engine: flow.EngineOptions{Hook: one.hook},
			onEnd: func(_ *Domain, r flow.Result) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(r.Err, flow.ErrPreempted) {
					preempted++
				} else if r.Status == flow.Failed {
					t.Error(r.Err)
				}
			},
		})
		defer func() { cancel(); wait() }()
		keys, err := s.a.create(ctx, s.prefix, 1, 4, DomainSpec{Servers: 3, Image: "server:1"})
		s.must(err)
		defer func() { s.must(s.a.remove(context.Background(), keys)) }()
		s.must(s.a.await(ctx, func(domains map[client.Key]*Domain, _ map[client.Key]*corev1.Pod) bool {
			return !slices.ContainsFunc(keys, func(k client.Key) bool {
				d := domains[k]
				return d == nil || atRest(d) // not parked yet
			})
		}))
		for n := range 5 { // in quick succession
			s.must(s.a.change(ctx, keys, func(d *DomainSpec) { d.Image = fmt.Sprintf("server:%d", n+2) }))
		}
		s.must(s.a.awaitAvailable(ctx, keys, len(keys)))
		mu.Lock()
		defer mu.Unlock()
		if preempted < len(keys) {
			t.Errorf("%d fibers were preempted, want one of each domain at least", preempted)
		}
		one.mu.Lock()
		defer one.mu.Unlock()
		for _, p := range one.problems {
			t.Error(p)
		}
		for pod, err := range client.List[corev1.Pod](ctx, s.a.rt.Client(), client.Labels(domainLabel),
			client.InNamespace(keys[0].Namespace)) {
			s.must(err)
			if pod.Spec.Containers[0].Image != "server:6" || !podReady(pod) {
				t.Errorf("%s runs %s, ready %v", pod.Name, pod.Spec.Containers[0].Image, podReady(pod))
			}
		}
	})
}

func TestALostServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, 1, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, wait := s.run(ctx, s.cfg, operatorOptions{})
		defer func() { cancel(); wait() }()
		keys, err := s.a.create(ctx, s.prefix, 1, 1, DomainSpec{Servers: 2, Image: "server:1"})
		s.must(err)
		defer func() { s.must(s.a.remove(context.Background(), keys)) }()
		s.must(s.a.awaitAvailable(ctx, keys, 1))
		lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: keys[0].Namespace, Name: keys[0].Name + "-managed-2"}}
		before, err := client.Get[corev1.Pod](ctx, s.a.rt.Client(), client.KeyOf(lost))
		s.must(err)
		s.must(s.a.rt.Client().Delete(ctx, lost))
		s.must(s.a.await(ctx, func(_ map[client.Key]*Domain, pods map[client.Key]*corev1.Pod) bool {
			pod := pods[client.KeyOf(lost)]
			return pod != nil && pod.UID != before.UID && podReady(pod)
		}))
		s.must(s.a.awaitAvailable(ctx, keys, 1))
	})
}

func TestDebugPageShowsParkedFibers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, 1, time.Hour) // no pod is ever ready
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o, wait := s.run(ctx, s.cfg, operatorOptions{})
		defer func() { cancel(); wait() }()
		keys, err := s.a.create(ctx, s.prefix, 1, 2, DomainSpec{Servers: 1, Image: "server:1"})
		s.must(err)
		defer func() { s.must(s.a.remove(context.Background(), keys)) }()
		s.must(s.a.await(ctx, func(domains map[client.Key]*Domain, _ map[client.Key]*corev1.Pod) bool {
			for _, key := range keys {
				if d := domains[key]; d == nil || d.Status.Flow == nil || d.Status.Flow.Step != "admin-server/wait-ready" {
					return false
				}
			}
			return true
		}))
		wants := []string{
			fiberKey(keys[0]), fiberKey(keys[1]), "bring-up/admin-server/wait-ready", "parked (await)",
			"admin-server/start:next",
		}
		for { // a position is saved just before its fiber parks
			page := get(t, o.Handler(), "/debug/flows")
			missing := slices.DeleteFunc(slices.Clone(wants), func(want string) bool { return strings.Contains(page, want) })
			if len(missing) == 0 && !strings.Contains(page, "running") {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("the page lacks %q:\n%s", missing, page)
			}
		}
	})
}

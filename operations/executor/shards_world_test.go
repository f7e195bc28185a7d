package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// world has an API server in memory, a receiver, and replicas that share the operations.
type world struct {
	t          *testing.T
	ctx        context.Context
	seed       uint64
	server     *apiserver.Server
	calls      *call.Client // without disturbances
	layout     shard.Layout
	namespaces []string
	outside    *outside
	replicas   sync.WaitGroup // running replicas
	faulty     bool           // a third of the replicas' requests fail

	mu       sync.Mutex
	rnd      *rand.Rand
	holders  map[int]*member
	cuts     map[int]int // by slot: how often its work was interrupted
	grants   map[int]int // by slot: how often it was granted
	members  []*member   // alive
	ever     []*member   // all that ever joined
	n        int
	reported map[string]int // reported ends, by the id of the operation
}

func newWorld(t *testing.T, seed uint64, rnd *rand.Rand) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	server := operationbed.ServerWith(t, apiserver.Options{
		ShardedListAndWatch: seed%2 == 0, BookmarkInterval: 200 * time.Millisecond,
	})
	w := &world{
		t: t, ctx: ctx, seed: seed, rnd: rnd, server: server, layout: shard.Layout{Slots: 4},
		namespaces: []string{"payments", "orders", "billing", "search", "mail", "crm"},
		holders:    make(map[int]*member), cuts: make(map[int]int), grants: make(map[int]int), reported: make(map[string]int),
	}
	var err error
	if w.calls, err = call.New(call.Options{Config: server.Config()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.calls.Close)
	w.outside = newOutside(w)
	return w
}

// draw returns a random number below n. It is safe for concurrent use.
func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

func (w *world) scheduler(namespace string) *operations.Scheduler {
	w.t.Helper()
	s, err := operations.NewScheduler(operations.Options{
		Config: w.server.Config(), Calls: w.calls, Namespace: namespace,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	return s
}

func (w *world) webhook(namespace, name string, change func(*v1alpha1.WebhookSpec)) {
	w.t.Helper()
	hook := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	hook.Spec.Request.URL = w.outside.URL + "/" + name
	hook.Spec.Request.Headers = map[string]string{"X-Callback": "{{.CallbackURL}}"}
	hook.Spec.Retry.InitialInterval = metav1.Duration{Duration: webhook.MinInterval}
	hook.Spec.Breaker.Failures = 1000
	if change != nil {
		change(&hook.Spec)
	}
	hook.Default()
	hook.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindWebhook}
	if _, err := w.server.Put(hook); err != nil {
		w.t.Fatal(err)
	}
}

// member is one replica and its membership. The test itself plays the group.
type member struct {
	w          *world
	name       string
	link       *link
	sharding   *source.Sharding
	executor   *executor.Executor
	operations *store.Store
	stop       func()
	lost       map[int]bool  // slots whose last tenure here was interrupted; guarded by world.mu
	losing     chan struct{} // closed when the work of slots lost at once has ended; nil: none were
}

var errNotHeld = errors.New("another replica holds the slot")

// Layout and Fence implement shard.Membership. A paused member blocks before the check or after its result.
func (m *member) Layout() shard.Layout { return m.w.layout }

func (m *member) FenceOf(namespace string, uid types.UID) error {
	return m.Fence(m.w.layout.SlotOf(namespace, uid))
}

func (m *member) Fence(slot int) error {
	if err := m.link.wait(m.w.ctx); err != nil {
		return err
	}
	m.w.mu.Lock()
	holder := m.w.holders[slot]
	m.w.mu.Unlock()
	if holder != m {
		return errNotHeld
	}
	return m.link.wait(m.w.ctx)
}

// Operation implements executor.Recorder.
func (m *member) Operation(op *v1alpha1.Operation, _ bool, _, message string) {
	if strings.Contains(message, " succeeded") || strings.Contains(message, " failed: ") {
		m.w.mu.Lock()
		m.w.reported[op.EffectiveID()]++
		m.w.mu.Unlock()
	}
}

// join starts a replica that holds no slot.
func (w *world) join() *member {
	w.t.Helper()
	w.n++
	m := &member{
		w: w, name: fmt.Sprint("replica-", w.n), link: &link{}, sharding: source.NewSharding(w.layout),
		lost: make(map[int]bool),
	}
	config := disturb.Config(w.server.Config(), m.link.roundTrip)
	ctx, cancel := context.WithCancel(w.ctx)
	var own sync.WaitGroup
	open := func(group, version, resource, kind string, sharding *source.Sharding) *store.Store {
		gvr := v1alpha1.GroupVersion.WithResource(resource)
		gvr.Group, gvr.Version = group, version
		opts := store.Options{Resource: gvr, Kind: gvr.GroupVersion().WithKind(kind), Namespaced: true}
		if sharding != nil {
			opts.Shard = sharding.String()
		}
		st := store.New(opts)
		src, err := source.New(source.Config{
			REST: config, Resource: gvr, Sharding: sharding, BackoffBase: time.Millisecond, BackoffCap: 50 * time.Millisecond,
			SilenceBudget: 2 * time.Second,
		}, st.Sink)
		if err != nil {
			w.t.Fatal(err)
		}
		own.Go(func() {
			defer st.Close()
			if err := src.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
		return st
	}
	calls, err := call.New(call.Options{Config: disturb.Config(config, w.fault(m))})
	if err != nil {
		w.t.Fatal(err)
	}
	o := executor.Options{
		Calls: calls, Shards: m, Recorder: m, AllowTargets: []string{"127.0.0.1"}, MaxCalls: 16,
		Operations:      open("fairlead.io", "v1alpha1", "operations", v1alpha1.KindOperation, m.sharding),
		Webhooks:        open("fairlead.io", "v1alpha1", "webhooks", v1alpha1.KindWebhook, nil),
		Secrets:         open("", "v1", "secrets", "Secret", nil),
		ServiceAccounts: open("", "v1", "serviceaccounts", "ServiceAccount", nil),
		PublicURL:       "http://" + m.name, CallbackKey: []byte("the same key for all of the replicas"),
		Policy: call.Policy{
			Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond, Budget: &call.Budget{PerSecond: 1000},
		},
	}
	m.operations = o.Operations
	if m.executor, err = executor.New(o); err != nil {
		w.t.Fatal(err)
	}
	own.Go(func() {
		if err := m.executor.Run(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			w.t.Errorf("%s: %v", m.name, err)
		}
	})
	w.replicas.Add(1)
	m.stop = sync.OnceFunc(func() {
		defer w.replicas.Done()
		cancel()
		own.Wait()
		calls.Close()
	})
	w.mu.Lock()
	w.members, w.ever = append(w.members, m), append(w.ever, m)
	w.mu.Unlock()
	return m
}

// fault makes a third of the requests for operations fail, if the world is faulty.
func (w *world) fault(m *member) disturb.Tap {
	var mu sync.Mutex
	sent := map[string]int{}
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		path, name, ok := strings.Cut(r.URL.Path, "/operations/")
		if !w.faulty || !ok {
			return next.RoundTrip(r)
		}
		name, _, _ = strings.Cut(name, "/")
		mu.Lock()
		sent[name]++
		fault := disturb.Choose(w.seed, m.name, name, sent[name])
		mu.Unlock()
		return fault.RoundTrip(r, next, func() {
			if r.Method != http.MethodGet {
				w.touch(path[strings.LastIndex(path, "/")+1:], name)
			}
		})
	}
}

// touch changes an operation, as another writer would.
func (w *world) touch(namespace, name string) {
	_, err := w.server.Change(v1alpha1.OperationsResource, namespace, name, func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"touched": u.GetResourceVersion()})
	})
	if err != nil && w.ctx.Err() == nil {
		w.t.Errorf("cannot touch %s/%s: %v", namespace, name, err)
	}
}

// link is the connection of a replica to the API server.
type link struct {
	mu     sync.Mutex
	paused chan struct{} // closed at the end of the pause; nil: not paused
	cut    chan struct{} // closed when the network is back; nil: connected
	dead   chan struct{} // closed at once; nil: alive
}

var errCut, errDead = errors.New("the network is down"), errors.New("the process is dead")

func (l *link) state() (paused, cut <-chan struct{}, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paused, l.cut, l.dead != nil
}

// wait blocks while the replica is paused.
func (l *link) wait(ctx context.Context) error {
	for {
		paused, _, dead := l.state()
		switch {
		case dead:
			return errDead
		case paused == nil:
			return nil
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *link) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if err := l.wait(r.Context()); err != nil {
		return nil, err
	}
	if _, cut, _ := l.state(); cut != nil {
		return nil, errCut
	}
	answer, err := next.RoundTrip(r)
	if err == nil {
		answer.Body = &linkedBody{answer.Body, l, r.Context()}
	}
	return answer, err
}

type linkedBody struct {
	io.ReadCloser
	link *link
	ctx  context.Context // of the request to which this is the answer
}

func (b *linkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if _, cut, _ := b.link.state(); cut != nil {
		select {
		case <-cut:
		case <-b.ctx.Done():
		}
		return 0, errCut
	}
	if held := b.link.wait(b.ctx); held != nil {
		return 0, errors.Join(held, err)
	}
	return n, err
}

// pause and the following methods change the state of the link. undo ends that state.
func (l *link) pause() (undo func()) {
	c := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.paused = nil
		close(c)
	}
}

func (l *link) part() (undo func()) {
	c := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cut = nil
		close(c)
	}
}

func (l *link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = make(chan struct{})
}

// outside is the receiver of the replicas' calls. It counts calls by key, and checks that only the holder of a slot
// calls.
type outside struct {
	*httptest.Server
	w     *world
	back  sync.WaitGroup // callbacks under way
	mu    sync.Mutex
	calls map[string]map[string]int // by operation, and the rest of the key
	began map[string]time.Time      // by operation: the start of its first webhook
}

func newOutside(w *world) *outside {
	o := &outside{w: w, calls: make(map[string]map[string]int), began: make(map[string]time.Time)}
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	w.t.Cleanup(o.Close)
	return o
}

func (o *outside) serve(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	key := r.Header.Get("Idempotency-Key")
	namespace, rest, _ := strings.Cut(key, ".")
	id, of, _ := strings.Cut(rest, ".")
	from, token, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("X-Callback"), "http://"), "/callbacks/")
	if from != "" { // polls have no key
		o.w.judge(from, namespace, key)
	}
	o.mu.Lock()
	if o.calls[id] == nil {
		o.calls[id] = make(map[string]int)
	}
	o.calls[id][of]++
	if o.began[id].IsZero() && !strings.Contains(of, ".") {
		o.began[id] = time.Now()
	}
	n := o.calls[id][of]
	o.mu.Unlock()
	pauseFor(r, time.Duration(o.w.draw(30))*time.Millisecond)
	if r.URL.Path == "/back" {
		o.back.Go(func() { o.callBack(token) })
		rw.WriteHeader(http.StatusAccepted)
		return
	}
	answerByName(rw, r, r.URL.Path, n)
}

// callBack reports a success to a random replica, and to others until one accepts it.
func (o *outside) callBack(token string) {
	for o.w.ctx.Err() == nil {
		m := o.w.any()
		ctx, cancel := context.WithTimeout(o.w.ctx, 200*time.Millisecond)
		err := m.executor.Taker().Take(ctx, token, true, "")
		cancel()
		if err == nil || errors.Is(err, operations.ErrCallbackUsed) || errors.Is(err, operations.ErrUnknownCallback) {
			return
		}
		pauseOf(o.w.ctx, 5*time.Millisecond)
	}
}

func pauseOf(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (o *outside) counts(id string) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]int)
	for of, n := range o.calls[id] {
		out[of] = n
	}
	return out
}

// any returns a replica that is alive, or the one that was started last.
func (w *world) any() *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.members) == 0 { // the last one was just killed
		return w.ever[len(w.ever)-1]
	}
	return w.members[w.rnd.IntN(len(w.members))]
}

// judge fails the test unless the caller holds the slot, or has lost it during the call.
func (w *world) judge(from, namespace, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slot := w.layout.SlotOf(namespace, "")
	holder := w.holders[slot]
	if holder != nil && holder.name == from {
		return
	}
	for _, m := range w.ever {
		if m.name == from && !m.lost[slot] {
			w.t.Errorf("FAIRLEAD_SEED=%d: %s was called by %s, which does not hold slot %d", w.seed, key, from, slot)
		}
	}
}

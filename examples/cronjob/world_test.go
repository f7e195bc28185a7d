package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/examples/internal/mortal"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer starts an API server in this process, which serves CronJobs and refuses a Job that may restart its pods
// always, as a real one does.
func newServer(o apiserver.Options) (*apiserver.Server, error) {
	for _, r := range apiserver.DefaultResources() {
		if r.Kind == "Job" {
			r.Validate = func(_ context.Context, job, _ *unstructured.Unstructured) error {
				policy, _, _ := unstructured.NestedString(job.Object, "spec", "template", "spec", "restartPolicy")
				if policy != "OnFailure" && policy != "Never" {
					return fmt.Errorf("restartPolicy %q", policy)
				}
				return nil
			}
		}
		o.Resources = append(o.Resources, r)
	}
	o.Resources = append(o.Resources, apiserver.Resource{
		Group: kind.Group, Version: kind.Version, Resource: "cronjobs", Kind: kind.Kind, Namespaced: true,
		Subresources: []string{"status"},
	})
	return apiserver.New(o)
}

// world is an API server with one CronJob. The test sets its time, and does what the Job controller would.
type world struct {
	t         *testing.T
	cfg       *rest.Config
	namespace string
	users     *client.Client // without a cache: it sees what the server has
	now       atomic.Pointer[time.Time]
	begin     time.Time // the first time of the schedule
	cj        *CronJob
	op        *operator
}

// operator is one life of the program.
type operator struct {
	ctl      *reconcile.Controller
	reasons  chan []reconcile.Reason // of each reconciliation, when it has ended
	requests atomic.Int64
	died     chan struct{}
	stop     func()
}

func newWorld(t *testing.T, spec CronJobSpec) *world {
	t.Helper()
	server, err := newServer(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	w := &world{t: t, cfg: server.Config(), namespace: "team-a"}
	s, err := newScheme()
	if err == nil {
		w.users, err = client.New(client.Options{Config: w.cfg, Scheme: s})
	}
	w.must(err)
	t.Cleanup(w.users.Close)
	if spec.Schedule == "" {
		spec.Schedule = "*/5 * * * *"
	}
	spec.JobTemplate = jobTemplate()
	w.cj = &CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "report"}, Spec: spec}
	w.must(w.users.Create(t.Context(), w.cj))
	if schedule, err := parse(spec.Schedule); err == nil {
		w.begin = schedule.Next(w.cj.CreationTimestamp.UTC())
	}
	w.now.Store(new(w.cj.CreationTimestamp.Time))
	return w
}

func jobTemplate() batchv1.JobTemplateSpec {
	return batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "report", Image: "report:v1"}},
	}}}}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// operate starts an operator that dies at a write, unless that is 0, and ends it with the test.
func (w *world) operate(at int64, after bool) *operator {
	w.t.Helper()
	o := &operator{reasons: make(chan []reconcile.Reason, 1000), died: make(chan struct{})}
	cfg := rest.CopyConfig(w.cfg)
	cfg.Wrap(mortal.New(at, after, func(*http.Request) { close(o.died) }).Wrap)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &o.requests} })
	rt, err := newRuntime(cfg, fairlead.WithDrain(time.Millisecond))
	w.must(err)
	r := &cronJobs{c: rt.Client(), now: func() time.Time { return *w.now.Load() }}
	o.ctl = declare(rt, reconcile.Func[CronJob](func(ctx context.Context, cj *CronJob) (reconcile.Result, error) {
		defer func() { o.reasons <- reconcile.InfoFrom(ctx).Reasons }()
		return r.Reconcile(ctx, cj)
	}), w.namespace)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	o.stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(o.stop)
	w.op = o
	return o
}

// wait returns when a reconciliation for a reason has ended. If the operator has died, the next one does that by
// itself.
func (w *world) wait(what string, match func(reconcile.Reason) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	for {
		var reasons []reconcile.Reason
		select {
		case reasons = <-w.op.reasons:
		case <-w.op.died:
		case <-ctx.Done():
			w.t.Fatalf("there was no reconciliation because of %s", what)
		}
		select {
		case <-w.op.died:
			w.op.stop()
			w.start()
			return
		default:
		}
		if slices.ContainsFunc(reasons, match) {
			return
		}
	}
}

func (w *world) start() *world {
	w.t.Helper()
	w.operate(0, false)
	w.wait("the start", isInitial)
	return w
}

func isInitial(r reconcile.Reason) bool { return r.Type == reconcile.Initial }

// at sets the time to so long after the first time of the schedule, and returns when it was looked at.
func (w *world) at(d time.Duration) {
	w.t.Helper()
	w.now.Store(new(w.begin.Add(d)))
	source := fmt.Sprint("clock ", d)
	w.op.ctl.Trigger(client.KeyOf(w.cj), source)
	w.wait(source, func(r reconcile.Reason) bool { return r.Source == source })
}

// end plays the Job controller: the Job of a time is done.
func (w *world) end(d time.Duration, how batchv1.JobConditionType) {
	w.t.Helper()
	job, err := client.Get[batchv1.Job](w.t.Context(), w.users, client.Key{Namespace: w.namespace, Name: w.name(d)})
	w.must(err)
	began := metav1.NewTime(w.begin.Add(d))
	w.must(client.ModifyStatus(w.t.Context(), w.users, job.DeepCopy(), func(j *batchv1.Job) error {
		j.Status.StartTime = &began
		first := batchv1.JobFailureTarget
		if how == batchv1.JobComplete {
			j.Status.CompletionTime, first = &began, batchv1.JobSuccessCriteriaMet
		}
		for _, kind := range []batchv1.JobConditionType{first, how} {
			j.Status.Conditions = append(j.Status.Conditions,
				batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: began})
		}
		return nil
	}))
	w.wait("the end of "+job.Name, func(r reconcile.Reason) bool { return r.Key.Name == job.Name })
}

func (w *world) name(d time.Duration) string { return fmt.Sprintf("report-%d", w.begin.Add(d).Unix()) }

// jobs fails the test unless these Jobs exist, by their times.
func (w *world) jobs(times ...time.Duration) {
	w.t.Helper()
	var got, want []string
	for job, err := range client.List[batchv1.Job](w.t.Context(), w.users, client.InNamespace(w.namespace)) {
		w.must(err)
		got = append(got, job.Name)
	}
	for _, d := range times {
		want = append(want, w.name(d))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Fatalf("there are the jobs %v, not %v", got, want)
	}
}

// status fails the test unless the status names these Jobs as active, and has a condition, such as "Ready=True
// Waiting".
func (w *world) status(condition string, active ...time.Duration) CronJobStatus {
	w.t.Helper()
	cj, err := client.Get[CronJob](w.t.Context(), w.users, client.KeyOf(w.cj))
	w.must(err)
	var got, want, have []string
	for _, ref := range cj.Status.Active {
		got = append(got, ref.Name)
	}
	for _, d := range active {
		want = append(want, w.name(d))
	}
	for _, c := range cj.Status.Conditions {
		have = append(have, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	if !slices.Equal(got, want) || !slices.Contains(have, condition) {
		w.t.Fatalf("the status has the active jobs %v, not %v, and the conditions %s, of which %s is wanted",
			got, want, strings.Join(have, ", "), condition)
	}
	return cj.Status
}

// modify is a user who changes the spec.
func (w *world) modify(fn func(*CronJobSpec)) {
	w.t.Helper()
	w.must(client.Modify(w.t.Context(), w.users, w.cj, func(cj *CronJob) error { fn(&cj.Spec); return nil }))
	w.wait("a change of the spec", func(r reconcile.Reason) bool { return r.Type == reconcile.Modified })
}

// counted is a transport that counts requests, but for watches.
type counted struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (t counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		t.n.Add(1)
	}
	return t.next.RoundTrip(r)
}

func (t counted) WrappedRoundTripper() http.RoundTripper { return t.next }

package console

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/rights"
)

const (
	// endedName is the ConfigMap of the sessions that were ended, in Options.SessionNamespace.
	endedName = "fairlead-console-sessions"
	// shortSession is how long a session lasts unused where replicas cannot tell each other of a logout.
	shortSession = 15 * time.Minute
	// renewAfter is the age at which a short session that is used is renewed.
	renewAfter = shortSession / 3
	// freshFor is how long what was read of the ConfigMap is good, and goodFor how long it is while it cannot be read:
	// every replica refuses a session within five seconds of its end.
	freshFor, goodFor = 2 * time.Second, 5 * time.Second
	// probeEvery is how often the right to write the ConfigMap is looked at.
	probeEvery = time.Minute
	// readTime and writeTime bound what a request waits for the API server.
	readTime, writeTime = 4 * time.Second, 5 * time.Second
	maxConflicts        = 20
)

// logouts knows the sessions that were ended before their time. Replicas that share a session key tell each other by a
// ConfigMap, which is read when a session is used, at most every two seconds. A watch would not do: one that has died is
// noticed after minutes only. It is safe for concurrent use.
type logouts struct {
	calls     *call.Client // nil: there is no ConfigMap
	namespace string
	alone     bool // no other process can open the sessions
	log       *slog.Logger
	turn      chan struct{} // has one place: whoever asks the API server

	mu     sync.Mutex
	own    endings // by this process
	all    endings // as the ConfigMap had it
	asOf   time.Time
	shared bool      // the ConfigMap can be read and written
	probed time.Time // when that was found out
}

func newLogouts(o *Options) *logouts {
	l := &logouts{alone: len(o.SessionKey) == 0, log: o.Logger, turn: make(chan struct{}, 1)}
	if calls := o.Runtime.Calls(); calls != nil && !l.alone && !o.InsecureNoAuth && o.SessionNamespace != "" {
		l.calls, l.namespace = calls, o.SessionNamespace
		kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
		o.Runtime.Need(
			rights.Right{Kind: kind, Namespace: l.namespace, Names: []string{endedName}, Verbs: []string{"get", "update"}},
			rights.Right{Kind: kind, Namespace: l.namespace, Verbs: []string{"create"}},
		)
	}
	return l
}

// check returns until when a session lasts if it is not used again; errOver if it was ended or has lasted too long; and
// another error while that cannot be found out.
func (l *logouts) check(ctx context.Context, s *session) (until time.Time, err error) {
	if err := l.refresh(ctx); err != nil {
		return until, fmt.Errorf("cannot find out whether the session has ended: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	until = s.Until
	if short := s.Issued.Add(shortSession); !l.alone && !l.shared && short.Before(until) {
		until = short
	}
	if l.own.has(s) || l.all.has(s) || !time.Now().Before(until) {
		return until, errOver
	}
	return until, nil
}

// end ends a session. An error says that other replicas may not know.
func (l *logouts) end(ctx context.Context, s *session) error {
	l.mu.Lock()
	l.own.add(s, time.Now())
	l.mu.Unlock()
	if l.calls == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	for conflicts := 0; ; conflicts++ {
		asOf := time.Now()
		object, err := l.get(ctx)
		var all endings
		if err == nil {
			all = endingsOf(object.Data)
			all.add(s, asOf)
			all.store(object)
			err = l.put(ctx, object, "")
		}
		switch {
		case err == nil:
			l.learn(all, asOf)
			return nil
		case apierrors.IsForbidden(err): // then sessions are short
			l.know(false, err)
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err), conflicts == maxConflicts:
			return err
		}
		if err := pause(ctx, rand.N(100*time.Millisecond)); err != nil { //nolint:gosec // to be apart from other replicas
			return err
		}
	}
}

// refresh reads the ConfigMap unless that was done lately.
func (l *logouts) refresh(ctx context.Context) error {
	if l.calls == nil || l.fresh() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	if l.fresh() {
		return nil
	}
	asOf := time.Now()
	object, err := l.get(ctx)
	switch {
	case apierrors.IsForbidden(err):
		l.know(false, err)
		return nil
	case err != nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		if time.Since(l.asOf) < goodFor {
			return nil
		}
		return err
	}
	l.learn(endingsOf(object.Data), asOf)
	l.mu.Lock()
	due := time.Since(l.probed) >= probeEvery
	l.mu.Unlock()
	if !due {
		return nil
	}
	switch err := l.put(ctx, object, metav1.DryRunAll); {
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // others can, and so can this one
		l.know(true, nil)
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err): // the latter without the namespace
		l.know(false, err)
	}
	return nil
}

// fresh reports whether nothing has to be asked.
func (l *logouts) fresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.asOf) < freshFor || !l.shared && time.Since(l.probed) < probeEvery
}

func (l *logouts) learn(all endings, asOf time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.asOf = all, asOf
}

// know notes whether the ConfigMap can be read and written.
func (l *logouts) know(shared bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.probed.IsZero(); !shared && (l.shared || first) {
		l.log.Warn("sessions of the console last 15 minutes unless they are used: replicas cannot tell each other of a logout",
			"configMap", l.namespace+"/"+endedName, "error", err)
	}
	l.shared, l.probed = shared, time.Now()
}

// get returns the ConfigMap, without a resource version if there is none.
func (l *logouts) get(ctx context.Context) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: endedName}}
	request := l.request(call.VerbGet)
	request.NotFoundOK = true
	answer, err := call.Do(ctx, l.calls, request, call.Policy{Reported: true})
	if err != nil || answer == nil {
		return object, err
	}
	return object, answer.Into(object)
}

// put creates or updates the ConfigMap.
func (l *logouts) put(ctx context.Context, object *corev1.ConfigMap, dryRun string) error {
	request := l.request(call.VerbUpdate)
	if object.ResourceVersion == "" {
		request.Verb = call.VerbCreate
	}
	if request.Object, request.ConflictsExpected = object, true; dryRun != "" {
		request.Query = url.Values{"dryRun": {dryRun}}
	}
	_, err := call.Do(ctx, l.calls, request, call.Policy{Reported: true})
	return err
}

func (l *logouts) request(verb call.Verb) call.Request {
	return call.Request{
		Verb: verb, Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespace: l.namespace,
		Name: endedName,
	}
}

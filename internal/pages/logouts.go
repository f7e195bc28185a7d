package pages

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
	// endedName is the ConfigMap with the ended sessions, in SessionOptions.Namespace.
	endedName = "fairlead-console-sessions"
	// shortSession is the idle lifetime of a session if replicas cannot share logouts.
	shortSession = 15 * time.Minute
	// renewAfter is the age at which a short session in use is renewed.
	renewAfter = shortSession / 3
	// freshFor is how long the ConfigMap is cached, and goodFor how long the cache is used if reading fails. Every
	// replica therefore refuses a session within five seconds of its end.
	freshFor, goodFor = 2 * time.Second, 5 * time.Second
	// probeEvery is the interval between checks of the right to write the ConfigMap.
	probeEvery = time.Minute
	// readTime and writeTime bound the time that a request waits for the API server.
	readTime, writeTime = 4 * time.Second, 5 * time.Second
	maxConflicts        = 20
)

// logouts knows the sessions that were ended early. Replicas with the same session key share them in a ConfigMap. A
// replica reads it when a session is used, at most every two seconds. A watch is not sufficient, because a broken one
// may go unnoticed for minutes. logouts is safe for concurrent use.
type logouts struct {
	calls     *call.Client // nil: no ConfigMap
	namespace string
	alone     bool // no other process can open the sessions
	log       *slog.Logger
	turn      chan struct{} // capacity 1: a lock for API requests

	mu     sync.Mutex
	own    endings // ended by this process
	all    endings // last content of the ConfigMap
	asOf   time.Time
	shared bool      // the ConfigMap is readable and writable
	probed time.Time // time of that check
}

func newLogouts(o SessionOptions) *logouts {
	l := &logouts{alone: len(o.Key) == 0, log: o.Log, turn: make(chan struct{}, 1)}
	if !l.alone && o.Namespace != "" {
		l.calls, l.namespace = o.Calls, o.Namespace
	}
	return l
}

// rights returns the rights on the ConfigMap.
func (l *logouts) rights() []rights.Right {
	if l.calls == nil {
		return nil
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	return []rights.Right{
		{Kind: kind, Namespace: l.namespace, Names: []string{endedName}, Verbs: []string{"get", "update"}},
		{Kind: kind, Namespace: l.namespace, Verbs: []string{"create"}},
	}
}

// check returns the end of a session that is not used again. It returns errOver if the session has ended, and another
// error if the check failed.
func (l *logouts) check(ctx context.Context, s *Session) (until time.Time, err error) {
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

// end ends a session. An error means that other replicas may not know.
func (l *logouts) end(ctx context.Context, s *Session) error {
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
		case apierrors.IsForbidden(err): // sessions are short then
			l.know(false, err)
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err), conflicts == maxConflicts:
			return err
		}
		if err := Pause(ctx, rand.N(100*time.Millisecond)); err != nil { //nolint:gosec // jitter between replicas
			return err
		}
	}
}

// refresh reads the ConfigMap unless the cache is fresh.
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
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // a conflict proves the right to write
		l.know(true, nil)
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err): // NotFound: the namespace does not exist
		l.know(false, err)
	}
	return nil
}

// fresh reports whether no request is necessary.
func (l *logouts) fresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.asOf) < freshFor || !l.shared && time.Since(l.probed) < probeEvery
}

// learn records the content of the ConfigMap.
func (l *logouts) learn(all endings, asOf time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.asOf = all, asOf
}

// know records whether the ConfigMap is readable and writable.
func (l *logouts) know(shared bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.probed.IsZero(); !shared && (l.shared || first) {
		l.log.Warn("sessions of the console end 15 minutes after their last use, because replicas cannot share logouts",
			"configMap", l.namespace+"/"+endedName, "error", err)
	}
	l.shared, l.probed = shared, time.Now()
}

// get returns the ConfigMap, without a resource version if it does not exist.
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

package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// api is the HTTP API of a namespace. No executor runs; tests end operations themselves.
type api struct {
	t              *testing.T
	ctx            context.Context
	namespace, url string
	config         *rest.Config
	calls          *call.Client
	callbacks      *sink
	tokens         map[string]string // by user: "all" has each right, "reader" may read, "nobody" has none
	users          *users
	handler        http.Handler
}

func setup(t *testing.T, change func(*httpapi.Options)) *api {
	t.Helper()
	return setupWith(t, func(_ *api, o *httpapi.Options) {
		if change != nil {
			change(o)
		}
	})
}

// setupWith is setup for a change that needs the server.
func setupWith(t *testing.T, change func(*api, *httpapi.Options)) *api {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	a := &api{
		t: t, ctx: ctx, namespace: "team-a", callbacks: &sink{}, users: &users{},
		tokens: map[string]string{"": "", "forged": "abc.def.ghi"},
	}
	a.config = operationbed.ServerWith(t, apiserver.Options{
		Authenticate: a.users.authenticate, Authorize: a.users.authorize,
	}).Config()
	config := a.config
	var err error
	if a.calls, err = call.New(call.Options{Config: config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.calls.Close)
	for user, verbs := range map[string][]string{
		"all": {"get", "list", "create", "update"}, "reader": {"get", "list"}, "nobody": nil,
	} {
		a.user(user, verbs)
	}
	scheduler, err := operations.NewScheduler(operations.Options{Config: config, Calls: a.calls, Namespace: a.namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	st := operationbed.Follow(ctx, t, config, v1alpha1.OperationsResource, v1alpha1.KindOperation, a.namespace)
	o := httpapi.Options{
		Scheduler: scheduler, Operations: st, Authorizer: httpapi.NewKubernetes(a.calls),
		Callbacks: a.callbacks,
	}
	change(a, &o)
	if a.handler, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a.handler)
	t.Cleanup(server.Close)
	a.url = server.URL
	if o.Operations == st {
		<-st.Synced()
	}
	return a
}

// user creates a user with rights on operations.
func (a *api) user(name string, verbs []string) { a.tokens[name] = a.users.add(name, verbs) }

// sink accepts one callback token. It blocks on further tokens until hold is closed.
type sink struct {
	mu   sync.Mutex
	used bool
	got  []string
	take int // how often Take was called
	hold chan struct{}
	held atomic.Int64 // calls that wait
}

// Owner knows the token "good", and tokens that begin with a namespace and a slash.
func (s *sink) Owner(token string) (string, error) {
	if namespace, _, ok := strings.Cut(token, "/"); ok {
		return namespace, nil
	}
	if token == "good" {
		return "one", nil
	}
	return "", operations.ErrUnknownCallback
}

func (s *sink) Take(ctx context.Context, token string, succeeded bool, message string) error {
	if strings.Contains(token, "/") && s.hold != nil {
		s.held.Add(1)
		defer s.held.Add(-1)
		select {
		case <-s.hold:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take++
	switch {
	case token != "good":
		return operations.ErrUnknownCallback
	case s.used:
		return operations.ErrCallbackUsed
	}
	s.used, s.got = true, append(s.got, fmt.Sprintf("%v %s", succeeded, message))
	return nil
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a *api) do(user, method, path, body string, headers ...string) answer {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if token := a.tokens[user]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if resp.StatusCode >= 400 {
		var p httpapi.Problem
		if err := json.Unmarshal(text, &p); err != nil || p.Status != resp.StatusCode || p.Title == "" ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			a.t.Errorf("%s %s: %d is not a problem document: %s %s",
				method, path, resp.StatusCode, resp.Header.Get("Content-Type"),
				text)
		}
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (a *api) view(got answer) operations.View {
	a.t.Helper()
	var v operations.View
	if err := json.Unmarshal([]byte(got.body), &v); err != nil {
		a.t.Fatalf("%v: %s", err, got.body)
	}
	return v
}

// finish ends an operation as an executor would.
func (a *api) finish(name string, phase v1alpha1.Phase) {
	a.t.Helper()
	a.setStatus(name, func(s *v1alpha1.OperationStatus) { s.Phase = phase })
}

// setStatus writes a status of the current operation.
func (a *api) setStatus(name string, change func(*v1alpha1.OperationStatus)) {
	a.t.Helper()
	request := call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.OperationsResource, Kind: "Operation",
		Namespace: a.namespace, Name: name,
	}
	got, err := call.Do(a.ctx, a.calls, request, call.Policy{})
	op := &v1alpha1.Operation{}
	if err == nil {
		err = got.Into(op)
	}
	if err == nil {
		op.Status.OperationID, op.Status.OperationType = op.EffectiveID(), op.Spec.OperationType
		change(&op.Status)
		request.Verb, request.Subresource, request.Object = call.VerbUpdate, "status", op
		_, err = call.Do(a.ctx, a.calls, request, call.Policy{})
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func anonymous(o *httpapi.Options) { o.Authorizer = httpapi.Anonymous{} }

func (a *api) eventually(ok func() bool) {
	a.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			a.t.Fatal("never as wanted")
		}
	}
}

package call_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
)

// A step whose request is a list gets the items of all pages.
func TestStepLists(t *testing.T) {
	t.Parallel()
	list := call.Request{Verb: call.VerbList, Resource: configMaps, Query: url.Values{"limit": {"50"}}}
	two := call.Policy{PageSize: 2}
	for _, tc := range []struct {
		reason   string
		request  call.Request
		policy   call.Policy
		script   []http.HandlerFunc
		want     []string
		requests []string
		waits    []time.Duration
		err      func(error) bool
	}{
		{
			"the pages are fetched one after the other, in the size of the policy",
			list, two,
			[]http.HandlerFunc{page("t1", "a@1", "b@2"), page("t2", "c@3"), page("", "d@4")},
			[]string{"a@1", "b@2", "c@3", "d@4"},
			[]string{"limit=2", "continue=t1&limit=2", "continue=t2&limit=2"},
			nil, nil,
		},
		{
			"the default of the policy replaces a limit in the query, too",
			list,
			call.Policy{},
			[]http.HandlerFunc{page("", "a@1")},
			[]string{"a@1"},
			[]string{"limit=50"},
			nil, nil,
		},
		{
			"without paging the server may still answer in pages",
			call.Request{Verb: call.VerbList, Resource: configMaps},
			call.Policy{PageSize: -1},
			[]http.HandlerFunc{page("t1", "a@1"), page("", "b@2")},
			[]string{"a@1", "b@2"},
			[]string{"", "continue=t1"},
			nil, nil,
		},
		{
			"a page that fails is tried again, and the pages before it are kept",
			list, two,
			[]http.HandlerFunc{page("t1", "a@1"), status(503, "ServiceUnavailable", "x"), page("", "b@2")},
			[]string{"a@1", "b@2"},
			[]string{"limit=2", "continue=t1&limit=2", "continue=t1&limit=2"},
			[]time.Duration{0, 400 * time.Millisecond},
			nil,
		},
		{
			"a list with an expired token starts again, and is one list",
			list, two,
			[]http.HandlerFunc{page("t1", "a@1", "b@2"), expired, page("t2", "b@9"), page("", "c@3")},
			[]string{"b@9", "c@3"},
			[]string{"limit=2", "continue=t1&limit=2", "limit=2", "continue=t2&limit=2"},
			nil, nil,
		},
		{
			"once",
			list, two,
			[]http.HandlerFunc{page("t1", "a@1"), expired},
			nil,
			[]string{"limit=2", "continue=t1&limit=2", "limit=2"},
			nil, apierrors.IsResourceExpired,
		},
		{
			"a repeated token is an error",
			list, two,
			[]http.HandlerFunc{page("t1", "a@1"), page("t1", "a@1")},
			nil,
			[]string{"limit=2", "continue=t1&limit=2"},
			nil, isProtocol,
		},
		{
			"a page that comes again with another token is an error",
			list, two,
			[]http.HandlerFunc{page("t1", "a@1"), page("t2", "a@1")},
			nil,
			[]string{"limit=2", "continue=t1&limit=2"},
			nil, isProtocol,
		},
		{
			"a Table has no pages of items, and is fetched without a limit",
			call.Request{
				Verb: call.VerbList, Resource: configMaps, Query: url.Values{"limit": {"50"}},
				Accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
			},
			two,
			[]http.HandlerFunc{answer(200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","items":[]}`)},
			nil,
			[]string{""},
			nil, nil,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				got, err := listByStep(t, b.client, tc.request, tc.policy)
				if (tc.err == nil) != (err == nil) || tc.err != nil && !tc.err(err) {
					t.Errorf("unexpected error %v", err)
				}
				var names []string
				for _, cm := range got {
					names = append(names, cm.Name+"@"+cm.ResourceVersion)
				}
				if diff := cmp.Diff(tc.want, names); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
				var requests []string
				for _, s := range b.seen() {
					_, query, _ := strings.Cut(s, "?")
					requests = append(requests, query)
				}
				if diff := cmp.Diff(tc.requests, requests); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.waits, b.waits()); tc.waits != nil && diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The pages of a protobuf list make one protobuf list.
func TestStepListsProtobuf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		part := func(token, name string) http.HandlerFunc {
			body := protobuf(t, &corev1.ConfigMapList{
				ListMeta: metav1.ListMeta{ResourceVersion: "50", Continue: token},
				Items:    []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: name}}},
			}, "ConfigMapList")
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", call.Protobuf)
				w.Write(body)
			}
		}
		b := newBench(t, call.Options{}, part("t1", "a"), part("", "b"))
		got, err := listByStep(t, b.client,
			call.Request{Verb: call.VerbList, Resource: configMaps, Accept: call.Protobuf}, call.Policy{})
		if err != nil || len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// listByStep runs a flow of one step, and returns the items of its answer.
func listByStep(t *testing.T, c *call.Client, r call.Request, p call.Policy) ([]corev1.ConfigMap, error) {
	t.Helper()
	var list corev1.ConfigMapList
	e := flow.NewEngine(flow.EngineOptions{})
	fl := flow.New("list", call.Step("list", c, call.StepSpec[visit]{
		Policy:  p,
		Request: func(context.Context, *visit) (call.Request, error) { return r, nil },
		OnSuccess: func(_ context.Context, f *flow.Fiber[visit], a *call.Answer) flow.Next {
			if err := a.Into(&list); err != nil {
				return f.Fail(err)
			}
			return f.Next()
		},
	}))
	h, err := fl.Start(t.Context(), e, new(visit), flow.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = h.Wait(t.Context())
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return list.Items, err
}

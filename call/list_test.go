package call_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/call"
)

// page is a LIST answer of objects "name@version".
func page(next string, objects ...string) http.HandlerFunc {
	return answer(200, pageBody(next, objects...))
}

func pageBody(next string, objects ...string) string {
	var items []string
	for _, o := range objects {
		name, version, _ := strings.Cut(o, "@")
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-%s","resourceVersion":%q}}`, name, name,
			version))
	}
	return fmt.Sprintf(
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"50","continue":%q},"items":[%s]}`, next,
		strings.Join(items, ","),
	)
}

var expired = status(410, "Expired", "the continue parameter is too old")

func TestList(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		script   []http.HandlerFunc
		want     []string
		requests []string
		err      func(error) bool
	}{
		{
			"pages are followed",
			[]http.HandlerFunc{page("t1", "a@1", "b@2"), page("t2", "c@3"), page("", "d@4")},
			[]string{"a@1", "b@2", "c@3", "d@4"},
			[]string{"limit=2&resourceVersion=0", "continue=t1&limit=2", "continue=t2&limit=2"},
			nil,
		},
		{"an empty list yields nothing", []http.HandlerFunc{page("")}, nil, []string{"limit=2&resourceVersion=0"}, nil},
		{
			"a page is retried on its own",
			[]http.HandlerFunc{page("t1", "a@1"), reset, page("", "b@2")},
			[]string{"a@1", "b@2"},
			[]string{"limit=2&resourceVersion=0", "continue=t1&limit=2", "continue=t1&limit=2"},
			nil,
		},
		{
			"an expired token starts again, and unchanged objects are not yielded twice",
			[]http.HandlerFunc{page("t1", "a@1", "b@2"), expired, page("t2", "a@1", "b@9"), page("", "c@3")},
			[]string{"a@1", "b@2", "b@9", "c@3"},
			[]string{"limit=2&resourceVersion=0", "continue=t1&limit=2", "limit=2&resourceVersion=0", "continue=t2&limit=2"},
			nil,
		},
		{
			"but only once",
			[]http.HandlerFunc{page("t1", "a@1"), expired, page("t2", "a@1"), expired},
			[]string{"a@1"},
			[]string{"limit=2&resourceVersion=0", "continue=t1&limit=2", "limit=2&resourceVersion=0", "continue=t2&limit=2"},
			apierrors.IsResourceExpired,
		},
		{
			"410 without a token is an error",
			[]http.HandlerFunc{expired},
			nil,
			[]string{"limit=2&resourceVersion=0"},
			apierrors.IsResourceExpired,
		},
		{
			"a server that repeats its token does not cause an endless list",
			[]http.HandlerFunc{page("t1", "a@1"), page("t1", "a@1")},
			[]string{"a@1"},
			[]string{"limit=2&resourceVersion=0", "continue=t1&limit=2"},
			isProtocol,
		},
		{
			"a Table is no list",
			[]http.HandlerFunc{answer(200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1"}`)},
			nil,
			[]string{"limit=2&resourceVersion=0"},
			isProtocol,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				r := call.Request{Resource: configMaps, Query: map[string][]string{"resourceVersion": {"0"}}}
				var got []string
				var err error
				for cm, e := range call.List[corev1.ConfigMap](t.Context(), b.client, r, call.Policy{PageSize: 2}) {
					if err = e; err == nil {
						got = append(got, cm.Name+"@"+cm.ResourceVersion)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
				if (tc.err == nil) != (err == nil) || tc.err != nil && !tc.err(err) {
					t.Errorf("unexpected error %v", err)
				}
				var requests []string
				for _, s := range b.seen() {
					_, query, _ := strings.Cut(s, "?")
					requests = append(requests, query)
				}
				if diff := cmp.Diff(tc.requests, requests); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestListStopsWhenAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t, call.Options{}, page("t1", "a@1", "b@2"))
	for range call.List[corev1.ConfigMap](t.Context(), b.client, call.Request{Resource: configMaps}, call.Policy{}) {
		break
	}
	if n := len(b.seen()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestListUnstructuredKeepsKindAndIntegers(t *testing.T) {
	t.Parallel()
	b := newBench(t, call.Options{}, answer(200,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a","generation":9007199254740993}}]}`))
	for u, err := range call.List[unstructured.Unstructured](t.Context(), b.client, call.Request{Resource: configMaps},
		call.Policy{}) {
		if err != nil || u.GetKind() != "ConfigMap" || u.GetAPIVersion() != "v1" || u.GetGeneration() != 9007199254740993 {
			t.Errorf("got %v, %v", u, err)
		}
	}
}

func TestListProtobuf(t *testing.T) {
	t.Parallel()
	list := corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "50"}, Items: []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
	}}
	body := protobuf(t, &list, "ConfigMapList")
	b := newBench(t, call.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", call.Protobuf)
		w.Write(body)
	})
	var got []string
	for cm, err := range call.List[corev1.ConfigMap](t.Context(), b.client,
		call.Request{Resource: configMaps, Accept: call.Protobuf}, call.Policy{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, cm.Kind+" "+cm.Name+" "+cm.Data["k"])
	}
	if diff := cmp.Diff([]string{"ConfigMap a v", "ConfigMap b "}, got); diff != "" {
		t.Error(diff)
	}
}

// An expired stream of pages starts again, as a list does.
func TestStreamStartsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{}, page("t1", "a@1", "b@2"), expired, page("t2", "a@1", "b@9"), page("", "c@3"))
		var got []string
		for cm, err := range call.Stream[corev1.ConfigMap](t.Context(), b.client, call.Request{Resource: configMaps},
			call.Policy{PageSize: 2}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, cm.Name+"@"+cm.ResourceVersion)
		}
		if diff := cmp.Diff([]string{"a@1", "b@2", "b@9", "c@3"}, got); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	})
}

// Cancellation of the context ends the stream and its request at once, with the cause as error.
func TestStreamIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		gone := make(chan time.Time, 1)
		b := newBench(t, call.Options{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			whole := pageBody("", "a@1", "b@2")
			io.WriteString(w, whole[:strings.Index(whole, `"name":"b"`)])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			gone <- time.Now()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(stop) })
		begun := time.Now()
		var last error
		for _, err := range call.Stream[corev1.ConfigMap](ctx, b.client, call.Request{Resource: configMaps}, call.Policy{}) {
			last = err
		}
		e, ok := errors.AsType[*call.Error](last)
		if !ok || !errors.Is(last, stop) || len(e.Tries) != 1 || e.Tries[0].Reason != "cancelled" {
			t.Errorf("got %v, want one try that was cancelled, and why", last)
		}
		if at := <-gone; at.Sub(begun) != 3*time.Second {
			t.Errorf("the server saw the cancellation after %v, want 3s", at.Sub(begun))
		}
	})
}

func TestStream(t *testing.T) {
	t.Parallel()
	whole := pageBody("", "a@1", "b@2", "c@3")
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, whole[:strings.Index(whole, `"name":"c"`)])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	stall := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, whole[:strings.Index(whole, `"name":"b"`)])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	trickle := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := range len(whole) {
			<-time.After(time.Second) // fake time; the whole list takes minutes, but each part arrives in time
			io.WriteString(w, whole[i:i+1])
			w.(http.Flusher).Flush()
		}
	}
	for _, tc := range []struct {
		reason string
		script []http.HandlerFunc
		want   []string
		tries  int
		ok     bool
	}{
		{"one body", []http.HandlerFunc{answer(200, whole)}, []string{"a@1", "b@2", "c@3"}, 1, true},
		{
			"an interrupted body is requested again",
			[]http.HandlerFunc{cut, answer(200, whole)},
			[]string{"a@1", "b@2", "c@3"},
			2, true,
		},
		{"so is one without progress", []http.HandlerFunc{stall, answer(200, whole)}, []string{"a@1", "b@2", "c@3"}, 2, true},
		{"a slow one is not interrupted", []http.HandlerFunc{trickle}, []string{"a@1", "b@2", "c@3"}, 1, true},
		{
			"an error before the list",
			[]http.HandlerFunc{status(503, "ServiceUnavailable", "x"), answer(200, whole)},
			[]string{"a@1", "b@2", "c@3"},
			2, true,
		},
		{"a server that always interrupts", []http.HandlerFunc{cut}, []string{"a@1", "b@2"}, 6, false},
		{
			"metadata after the items",
			[]http.HandlerFunc{
				answer(200,
					`{"items":[{"metadata":{"name":"a","resourceVersion":"1"}}],"kind":"ConfigMapList","metadata":{"resourceVersion":"5"}}`),
			},
			[]string{"a@1"},
			1, true,
		},
		{"a repeated token", []http.HandlerFunc{answer(200, pageBody("t1", "a@1"))}, []string{"a@1"}, 2, false},
		{
			"the same page with other tokens",
			[]http.HandlerFunc{
				answer(200, pageBody("t1", "a@1", "b@1")), answer(200, pageBody("t2", "c@1")),
				answer(200, pageBody("t3", "a@1", "b@1")),
			},
			[]string{"a@1", "b@1", "c@1"},
			3, false,
		},
		{"null items", []http.HandlerFunc{answer(200, `{"kind":"ConfigMapList","items":null}`)}, nil, 1, true},
		{"another kind", []http.HandlerFunc{answer(200, `{"kind":"Table","rows":[]}`)}, nil, 1, false},
		{"html", []http.HandlerFunc{withHeader(answer(200, "<html>"), "X", "y")}, nil, 6, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				var got []string
				var err error
				for cm, e := range call.Stream[corev1.ConfigMap](t.Context(), b.client, call.Request{Resource: configMaps},
					call.Policy{}) {
					if err = e; err == nil {
						got = append(got, cm.Name+"@"+cm.ResourceVersion)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
				if (err == nil) != tc.ok || len(b.seen()) != tc.tries {
					t.Errorf("after %d tries: %v", len(b.seen()), err)
				}
			})
		})
	}
}

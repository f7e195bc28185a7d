package apiserver_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestListOnTheWire takes the rules for LIST one by one. The server holds x1…x5 at revisions 2…6, then x1 changed at 7
// and x2 deleted at 8.
func TestListOnTheWire(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x1", "x2", "x3", "x4", "x5")
	put(t, s, "x1", "2")
	if err := s.Remove(configMaps, "a", "x2"); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason, query string
		code          int
		names         string
		version       string
		why           metav1.StatusReason
	}{
		"absent":        {"a consistent read", "", 200, "x1 x3 x4 x5", "8", ""},
		"empty":         {"the same as absent", "resourceVersion=", 200, "x1 x3 x4 x5", "8", ""},
		"any":           {"any state that is cached", "resourceVersion=0", 200, "x1 x3 x4 x5", "8", ""},
		"any and limit": {"the watch cache does not page", "resourceVersion=0&limit=2", 200, "x1 x3 x4 x5", "8", ""},
		"at least":      {"not older than 3", "resourceVersion=3", 200, "x1 x3 x4 x5", "8", ""},
		"not older": {
			"the same, spelt out", "resourceVersion=3&resourceVersionMatch=NotOlderThan", 200, "x1 x3 x4 x5",
			"8", "",
		},
		"exact": {"the state at 3", "resourceVersion=3&resourceVersionMatch=Exact", 200, "x1 x2", "3", ""},
		"exact deleted": {
			"an object that has been deleted since", "resourceVersion=7&resourceVersionMatch=Exact", 200,
			"x1 x2 x3 x4 x5", "7", "",
		},
		"too large": {"the server has not come so far", "resourceVersion=99", 504, "", "", metav1.StatusReasonTimeout},
		"exact too new": {
			"likewise", "resourceVersion=99&resourceVersionMatch=Exact", 504, "", "",
			metav1.StatusReasonTimeout,
		},
		"match alone": {"a match needs a version", "resourceVersionMatch=Exact", 422, "", "", metav1.StatusReasonInvalid},
		"exact any": {
			"0 is no exact version", "resourceVersion=0&resourceVersionMatch=Exact", 422, "", "",
			metav1.StatusReasonInvalid,
		},
		"odd match": {
			"an unknown match", "resourceVersion=3&resourceVersionMatch=Newer", 422, "", "",
			metav1.StatusReasonInvalid,
		},
		"initial events": {"only a watch has them", "sendInitialEvents=true", 422, "", "", metav1.StatusReasonInvalid},
		"odd version":    {"not a number", "resourceVersion=abc", 400, "", "", metav1.StatusReasonBadRequest},
		"odd limit":      {"not a number", "limit=abc", 400, "", "", metav1.StatusReasonBadRequest},
		"odd continue":   {"not a token", "continue=abc", 400, "", "", metav1.StatusReasonBadRequest},
		"name":           {"the fields that everything has", "fieldSelector=metadata.name%3Dx3", 200, "x3", "8", ""},
		"not name": {
			"an inequality", "fieldSelector=metadata.name!%3Dx3,metadata.namespace%3Da", 200, "x1 x4 x5", "8",
			"",
		},
		"odd field": {
			"a field that is not registered", "fieldSelector=data.k%3D1", 400, "", "",
			metav1.StatusReasonBadRequest,
		},
		"odd labels": {"not a selector", "labelSelector=a%3D%3D%3D", 400, "", "", metav1.StatusReasonBadRequest},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := c.get(configMapPath + "?" + tc.query)
			if got.Code != tc.code || got.names() != tc.names || got.Obj.Metadata.ResourceVersion != tc.version ||
				got.Obj.Reason != tc.why {
				t.Errorf("%s: %d %q at %q, reason %q; want %d %q at %q, reason %q\n%s", tc.reason, got.Code, got.names(),
					got.Obj.Metadata.ResourceVersion, got.Obj.Reason, tc.code, tc.names, tc.version, tc.why, got.Body)
			}
			if tc.code == 504 && (got.Obj.Details == nil || len(got.Obj.Details.Causes) != 1 ||
				got.Obj.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge ||
				got.Obj.Details.RetryAfterSeconds != 1) {
				t.Errorf("a version that is too large needs its cause and retryAfterSeconds: %s", got.Body)
			}
		})
	}
}

func TestPagesShowOneState(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x1", "x2", "x3", "x4", "x5")
	first := c.get(configMapPath + "?limit=2")
	if first.names() != "x1 x2" || first.Obj.Metadata.RemainingItemCount == nil ||
		*first.Obj.Metadata.RemainingItemCount != 3 {
		t.Fatalf("first page: %s", first.Body)
	}
	put(t, s, "x3", "2")
	put(t, s, "x31", "1")
	if err := s.Remove(configMaps, "a", "x4"); err != nil {
		t.Fatal(err)
	}
	token := first.Obj.Metadata.Continue
	if bad := c.get(configMapPath + "?limit=2&resourceVersion=3&continue=" + token); bad.Code != http.StatusBadRequest {
		t.Errorf("continue with resourceVersion: %d, want 400", bad.Code)
	}
	second := c.get(configMapPath + "?limit=2&continue=" + token)
	if second.names() != "x3 x4" || second.Obj.Metadata.ResourceVersion != first.Obj.Metadata.ResourceVersion ||
		second.Obj.Items[0].Metadata.ResourceVersion != "4" {
		t.Fatalf("second page is not of the state of the first: %s", second.Body)
	}
	third := c.get(configMapPath + "?limit=2&continue=" + second.Obj.Metadata.Continue)
	if third.names() != "x5" || third.Obj.Metadata.Continue != "" || third.Obj.Metadata.RemainingItemCount != nil {
		t.Fatalf("last page: %s", third.Body)
	}
	if l := s.Log().Select(apiserver.Match{Verb: "list", Page: 3}); len(l) != 1 || !l[0].Done {
		t.Errorf("the log does not know the third page: %+v", l)
	}
	if r := c.get(configMapPath + "?limit=2&fieldSelector=metadata.name!%3Dx1"); r.Obj.Metadata.Continue == "" ||
		r.Obj.Metadata.RemainingItemCount != nil {
		t.Errorf("with a selector nobody counts the rest: %s", r.Body)
	}

	s.Compact(0)
	gone := c.get(configMapPath + "?limit=2&continue=" + token)
	if gone.Code != http.StatusGone || gone.Obj.Reason != metav1.StatusReasonExpired || gone.Obj.Metadata.Continue == "" {
		t.Fatalf("a token from before the compaction: %d %s", gone.Code, gone.Body)
	}
	rest := c.get(configMapPath + "?continue=" + gone.Obj.Metadata.Continue)
	if rest.names() != "x3 x31 x5" || rest.Obj.Metadata.ResourceVersion != s.Version(s.Revision()) {
		t.Errorf("the inconsistent rest: %s", rest.Body)
	}
	if r := c.get(configMapPath + "?resourceVersion=3&resourceVersionMatch=Exact"); r.Code != http.StatusGone {
		t.Errorf("an exact version from before the compaction: %d", r.Code)
	}
}

// TestWatchOnTheWire takes the rules for WATCH one by one, on x1, x2 at 2, 3, then x1 changed at 4.
func TestWatchOnTheWire(t *testing.T) {
	t.Parallel()
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	tests := map[string]struct {
		reason, query string
		opts          apiserver.Options
		code          int
		frames        []string // then x2 is changed at 5 and deleted at 6
	}{
		"absent": {
			"the present state, then on", "",
			apiserver.Options{},
			200,
			[]string{"ADDED x1@4", "ADDED x2@3", "MODIFIED x2@5", "DELETED x2@6"},
		},
		"any": {
			"a cached state in any order", "&resourceVersion=0",
			apiserver.Options{},
			200,
			[]string{"ADDED x2@3", "ADDED x1@4", "MODIFIED x2@5", "DELETED x2@6"},
		},
		"version": {
			"exactly what came after", "&resourceVersion=3",
			apiserver.Options{},
			200,
			[]string{"MODIFIED x1@4", "MODIFIED x2@5", "DELETED x2@6"},
		},
		"future": {
			"accepted, and silent until the counter has passed it", "&resourceVersion=5",
			apiserver.Options{},
			200,
			[]string{"DELETED x2@6"},
		},
		"WatchList": {
			"ends with the annotated bookmark", initial,
			apiserver.Options{},
			200,
			[]string{"ADDED x1@4", "ADDED x2@3", "BOOKMARK end@4", "MODIFIED x2@5", "DELETED x2@6"},
		},
		"WatchList at": {
			"not older than 2", initial + "&resourceVersion=2",
			apiserver.Options{},
			200,
			[]string{"ADDED x1@4", "ADDED x2@3", "BOOKMARK end@4", "MODIFIED x2@5"},
		},
		"WatchList too large": {
			"as for a list, but in the stream", initial + "&resourceVersion=9",
			apiserver.Options{},
			200,
			[]string{"ERROR 504 Timeout", "END"},
		},
		"no match": {
			"sendInitialEvents needs NotOlderThan", "&sendInitialEvents=true",
			apiserver.Options{},
			422,
			nil,
		},
		"match alone": {
			"NotOlderThan needs sendInitialEvents", "&resourceVersionMatch=NotOlderThan",
			apiserver.Options{},
			422, nil,
		},
		"feature off": {"the server refuses", initial, apiserver.Options{NoWatchList: true}, 422, nil},
		"no initial events": {
			"sendInitialEvents=false starts now",
			"&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
			apiserver.Options{},
			200,
			[]string{"MODIFIED x2@5", "DELETED x2@6"},
		},
		"one object": {
			"by field selector", "&fieldSelector=metadata.name%3Dx2",
			apiserver.Options{},
			200,
			[]string{"ADDED x2@3", "MODIFIED x2@5", "DELETED x2@6"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tc.opts)
			fill(t, s, "x1", "x2")
			put(t, s, "x1", "2")
			w := newRaw(t, s).watch(configMapPath + "?watch=true" + tc.query)
			if w.code != tc.code {
				t.Fatalf("%s: code %d, want %d", tc.reason, w.code, tc.code)
			}
			if tc.code == 200 && strings.HasPrefix(tc.frames[0], "ERROR") {
				w.expect(tc.frames...)
			} else if tc.code == 200 {
				waitFor(t, s, func(l apiserver.Log) bool { return len(s.Watches(apiserver.Match{})) == 1 })
				put(t, s, "x2", "2")
				if err := s.Remove(configMaps, "a", "x2"); err != nil {
					t.Fatal(err)
				}
				w.expect(tc.frames...)
			}
		})
	}
}

func TestSelectorsAreEnteredAndLeft(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	labels := c.watch(configMapPath + "?watch=true&labelSelector=app%3Dweb")
	fieldsOf := c.watch("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dn1")
	other := c.watch("/api/v1/namespaces/b/configmaps?watch=true&allowWatchBookmarks=true")
	cm := configMap("x", "1")
	for _, l := range []string{"", "web", "web", "db", "web"} {
		cm.Labels, cm.Data = map[string]string{"app": l}, map[string]string{"at": s.Version(s.Revision())}
		if _, err := s.Put(cm); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(configMaps, "a", "x"); err != nil {
		t.Fatal(err)
	}
	labels.expect("ADDED x@3", "MODIFIED x@4", "DELETED x@5", "ADDED x@6", "DELETED x@7")
	pod := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": map[string]any{"namespace": "a", "name": "p"},
	}}
	for _, node := range []string{"", "n1", "n2"} {
		pod.Object["spec"] = map[string]any{"containers": []any{}, "nodeName": node}
		if _, err := s.Put(pod); err != nil {
			t.Fatal(err)
		}
	}
	fieldsOf.expect("ADDED p@9", "DELETED p@10")
	other.expect("BOOKMARK end@1")
	s.Bookmark(apiserver.Match{Namespace: "b"})
	other.expect("BOOKMARK @10")
}

// TestLeavingASelectorShowsTheStateBefore: the DELETED carries the last state that matched, and the new version.
func TestLeavingASelectorShowsTheStateBefore(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	w, err := typed(t, s).CoreV1().ConfigMaps("a").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	cm := configMap("x", "before")
	cm.Labels = map[string]string{"app": "web"}
	for range 2 {
		if _, err := s.Put(cm); err != nil {
			t.Fatal(err)
		}
		cm.Labels, cm.Data = nil, map[string]string{"k": "after"}
	}
	<-w.ResultChan()
	left := (<-w.ResultChan()).Object.(interface {
		metav1.Object
		GetLabels() map[string]string
	})
	if diff := cmp.Diff(map[string]string{"app": "web"}, left.GetLabels()); diff != "" ||
		left.GetResourceVersion() != "3" {
		t.Errorf("left at %s with labels %s", left.GetResourceVersion(), diff)
	}
}

func TestHistoryExpiresAndRollsBack(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x1", "x2", "x3") // 2, 3, 4
	s.Compact(3)
	c.watch(configMapPath+"?watch=true&resourceVersion=2").expect("ERROR 410 Expired", "END")
	live := c.watch(configMapPath + "?watch=true&resourceVersion=3&allowWatchBookmarks=true")
	live.expect("ADDED x3@4")
	s.Compact(0)
	if err := s.Rollback(3); err == nil {
		t.Error("history that was compacted came back")
	}
	put(t, s, "x4", "1") // 5
	put(t, s, "x1", "2") // 6
	live.expect("ADDED x4@5", "MODIFIED x1@6")

	if err := s.Rollback(4); err != nil {
		t.Fatal(err)
	}
	if l := c.get(configMapPath); l.names() != "x1 x2 x3" || l.Obj.Metadata.ResourceVersion != "4" {
		t.Fatalf("after the rollback: %s", l.Body)
	}
	s.Bookmark(apiserver.Match{})
	live.expect("BOOKMARK @4")
	put(t, s, "y5", "1") // 5 and 6 for the second time: the old watch hears of neither
	put(t, s, "y6", "1")
	put(t, s, "y7", "1")
	live.expect("ADDED y7@7")
	c.watch(configMapPath+"?watch=true&resourceVersion=4").expect("ADDED y5@5", "ADDED y6@6", "ADDED y7@7")
}

func TestOpaqueVersionsHaveNoOrder(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{OpaqueVersions: true})
	c := newRaw(t, s)
	fill(t, s, "x1", "x2")
	l := c.get(configMapPath + "?limit=1")
	v := l.Obj.Metadata.ResourceVersion
	if !strings.HasPrefix(v, "v-") || l.Obj.Items[0].Metadata.ResourceVersion == v {
		t.Fatalf("version %q", v)
	}
	put(t, s, "x3", "1")
	c.watch(configMapPath + "?watch=true&resourceVersion=" + v).expect("ADDED x3@" + s.Version(s.Revision()))
	if r := c.get(configMapPath + "?resourceVersion=7"); r.Code != http.StatusBadRequest {
		t.Errorf("a number: %d, want 400", r.Code)
	}
	if r := c.get(configMapPath + "?continue=" + l.Obj.Metadata.Continue); r.names() != "x2" {
		t.Errorf("second page: %s", r.Body)
	}
}

func TestResourcesComeAndGo(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{Resources: []apiserver.Resource{apiserver.Widgets()}})
	c := newRaw(t, s)
	const path = "/apis/example.fairlead.io/v1/widgets"
	w := c.watch(path + "?watch=true")
	if r := c.get(configMapPath); r.Code != 404 {
		t.Errorf("a resource that is not registered: %d", r.Code)
	}
	expectServed := func(want bool) {
		t.Helper()
		isWidgets := func(r apiserver.Resource) bool { return r.GVR() == widgets }
		if got := slices.ContainsFunc(s.Resources(), isWidgets); got != want {
			t.Errorf("widgets are among the resources: %t, want %t", got, want)
		}
	}
	expectServed(true)
	if !s.Withdraw(widgets) || s.Withdraw(widgets) {
		t.Error("Withdraw does not say whether the resource was served")
	}
	w.expect("END")
	expectServed(false)
	if r := c.get(path); r.Code != 404 || r.Obj.Kind != "" || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("withdrawn: %d %s", r.Code, r.Body)
	}
	s.Register(apiserver.Widgets())
	if r := c.get(path); r.Code != 200 || r.Obj.Kind != "WidgetList" {
		t.Errorf("registered again: %d %s", r.Code, r.Body)
	}
	expectServed(true)
	for _, path := range []string{
		"/readyz", "/version", "/api", "/apis", "/apis/example.fairlead.io",
		"/apis/example.fairlead.io/v1",
	} {
		if r := c.get(path); r.Code != 200 {
			t.Errorf("%s: %d", path, r.Code)
		}
	}
}

func TestBuiltInItemsHaveNoKind(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x")
	widget := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Widget", "apiVersion": "example.fairlead.io/v1",
		"metadata": map[string]any{"namespace": "a", "name": "w"},
	}}
	if _, err := s.Put(widget); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{configMapPath: "", "/apis/example.fairlead.io/v1/widgets": "Widget"} {
		if r := c.get(path); len(r.Obj.Items) != 1 || r.Obj.Items[0].Kind != want {
			t.Errorf("%s: want items of kind %q: %s", path, want, r.Body)
		}
	}
	if r := c.get(configMapPath + "/x"); r.Obj.Kind != "ConfigMap" {
		t.Errorf("get: %s", r.Body)
	}
	if fmt.Sprint(s.Log().Peak(apiserver.Match{Verb: "list"})) != "1" {
		t.Error("lists one after the other are not one at a time in the log")
	}
}

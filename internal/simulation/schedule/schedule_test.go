package schedule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The verb and the object of a request follow from its URL.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ method, url, want string }{
		{"GET", "/api/v1/namespaces/a/pods/b", "get pods a/b "},
		{"GET", "/api/v1/pods?watch=true", "watch pods / "},
		{"GET", "/apis/apps/v1/namespaces/a/deployments", "list deployments.apps a/ "},
		{"GET", "/api/v1/namespaces/a", "get namespaces /a "},
		{"PUT", "/api/v1/namespaces/a/status", "update namespaces /a status"},
		{"PUT", "/api/v1/namespaces/a/finalize", "update namespaces /a finalize"},
		{"POST", "/api/v1/namespaces/a/pods/b/eviction", "create pods a/b eviction"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection pods a/ "},
		{"GET", "/apis/apps/v1", ""},
		{"GET", "/version", ""},
	} {
		q, ok := parse(httptest.NewRequest(tt.method, tt.url, nil))
		got := ""
		if ok {
			got = q.verb + " " + q.resource.String() + " " + q.namespace + "/" + q.name + " " + q.subresource
		}
		if got != tt.want {
			t.Errorf("%s %s is %q, want %q", tt.method, tt.url, got, tt.want)
		}
	}
}

// What the subject uses and the server does not have is reported, but not a kind that is served at the end, and that
// the subject's lists allow an old state.
func TestCoverage(t *testing.T) {
	resources := []apiserver.Resource{
		{Version: "v1", Resource: "pods", Subresources: []string{"status"}},
		{Group: "batch", Version: "v1", Resource: "cronjobs"},
	}
	c := newCoverage(map[schema.GroupResource]string{{Group: "batch", Resource: "cronjobs"}: "no controller"},
		func() []apiserver.Resource { return resources })
	for _, tt := range []struct {
		path string
		code int
	}{
		{"/api/v1/namespaces/a/pods/b", 404},
		{"/api/v1/namespaces/a/pods/b/status", 404},
		{"/api/v1/namespaces/a/pods/b/eviction", 404},
		{"/api/v1/nodes", 404},
		{"/api/v1/secrets", 200},
		{"/apis/batch/v1/cronjobs?watch=true", 200},
		{"/apis/batch/v1beta1", 404},
		{"/apis/apps/v1", 200},
		{"/healthz", 404},
		{"/openapi/v3", 404},
		{"/apis/a.example", 404},
		{"/apis/a.example/v1", 404},
		{"/apis/a.example/v1/things?watch=true", 404},
	} {
		c.asked(httptest.NewRequest(http.MethodGet, tt.path, nil), tt.code)
	}
	resources = append(resources, apiserver.Resource{Group: "a.example", Version: "v1", Resource: "things"})
	c.allowsPast()
	want := []string{
		"lists of the subject allow an old state: the class stale, which is played on request, shows it",
		"not modelled: apis/batch/v1beta1 is not served", "not modelled: cronjobs.batch have no controller",
		"not modelled: openapi/v3 is not served", "not modelled: v1/nodes is not served",
		"not modelled: v1/pods/eviction is not served",
	}
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
}

// A run is quiet only after the end of its last fault, such as that of a pause with a write on the way.
func TestQuietAfterFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := engine.Fault{Kind: engine.Pause, At: engine.Moment{Verb: "create", Object: "pods/a"}}
		pause.For = engine.Duration(40 * time.Second)
		plan := engine.Plan{Faults: []engine.Fault{pause}}
		r := &Run{o: Options{Want: &engine.Want{}, Idle: func() bool { return true }, Progress: func() {}, Pace: Pace{
			Calm: 20 * time.Second, Brief: 3 * time.Second, TooLong: 3 * time.Minute, Window: 10 * time.Second,
			Poll: time.Second,
		}}}
		r.rec = newRecorder(newInjector(plan, newGates()), plan, false)
		begin := time.Now()
		if got := r.rec.write(pause.At); len(got) != 1 {
			t.Fatalf("The faults of the write are %v.", got)
		}
		err := r.Await(t.Context(), func() error { return errors.New("never") })
		took := time.Since(begin)
		if took < time.Minute || err == nil || !strings.Contains(err.Error(), "nothing changed for 20s") {
			t.Errorf("The step ended after %s with %v.", took, err)
		}
		begin = time.Now()
		r.rec.faults.happens(0)
		if quiet, _ := r.settle(t.Context()); !quiet || time.Since(begin) < 43*time.Second {
			t.Errorf("It is quiet: %t, after %s.", quiet, time.Since(begin))
		}
	})
}

// A condition that is missing is reported with those that are True, which often have the reason.
func TestConditionTrue(t *testing.T) {
	for _, tt := range []struct{ conditions, want string }{
		{`{"type":"Ready","status":"True"}`, ""},
		{`{"type":"Ready","status":"False","message":"no"}`, "the condition Ready is False: no"},
		{`{"type":"Ready","status":"True","observedGeneration":1}`, "the condition Ready is that of generation 1, not 2"},
		{
			`{"type":"Failed","status":"True","message":"it exists"},{"type":"Old","status":"False"},` +
				`{"type":"On","status":"True"}`,
			"there is no condition Ready; Failed is True: it exists; On is True",
		},
	} {
		obj := &unstructured.Unstructured{}
		text := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default","generation":2},` +
			`"status":{"conditions":[` + tt.conditions + `]}}`
		if err := obj.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := conditionIs(obj, "Ready", "True"); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s leads to %q, want %q", tt.conditions, got, tt.want)
		}
	}
}

// A repetition with the same idempotency key counts once; calls without a key count each.
func TestOutsideCountsEffects(t *testing.T) {
	o := newOutside(map[string]func() http.Handler{"x": func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refused" {
				w.WriteHeader(http.StatusConflict)
			}
		})
	}})
	call := func(method, path, key string) {
		r := httptest.NewRequest(method, "http://x"+path, nil)
		if key != "" {
			r.Header.Set(idempotencyKey, key)
		}
		resp := o.serve(r, o.services["x"], nil)
		resp.Body.Close()
	}
	for range 2 {
		call("POST", "/disks", "1")
		call("POST", "/nets", "")
		call("PUT", "/disks", "")
		call("POST", "/refused", "")
	}
	call("POST", "/disks", "2")
	if diff := cmp.Diff(map[string]int{"POST x/disks": 2, "POST x/nets": 2}, o.effects()); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// Steps that wait for a state are reached by it, and otherwise say what is missing.
func TestAwait(t *testing.T) {
	pods := apiserver.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	stalled := map[string]any{"type": "Stalled", "status": "False", "observedGeneration": int64(2)}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a", "namespace": "default", "generation": int64(2)},
		"status":   map[string]any{"conditions": []any{stalled}},
	}}
	for _, tt := range []struct {
		step      Step
		name, err string
	}{
		{Exists("pods/a"), "await pods/a", ""},
		{Exists("pods/b"), "await pods/b", "it does not exist"},
		{Gone("pods/b"), "await the end of pods/b", ""},
		{AwaitCondition("pods/a", "Stalled", "False"), "await Stalled=False of pods/a", ""},
		{AwaitCondition("pods/a", "Stalled", "false"), "await Stalled=false of pods/a", ""},
		{AwaitCondition("pods/a", "Stalled", ""), "await Stalled of pods/a", "the condition Stalled is False: <nil>"},
		{AwaitCondition("pods/a", "Ready", ""), "await Ready of pods/a", "there is no condition Ready"},
		{AwaitCondition("pods/b", "Ready", ""), "await Ready of pods/b", "pods/b does not exist"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &Run{
				o:     Options{Progress: func() {}, Pace: Pace{Calm: 20 * time.Second, TooLong: time.Minute, Poll: time.Second}},
				kinds: newKinds(func() []apiserver.Resource { return []apiserver.Resource{pods} }),
			}
			r.rec = newRecorder(newInjector(engine.Plan{}, newGates()), engine.Plan{}, true)
			r.OnChange(apiserver.Change{Resource: pods, New: pod})
			got := ""
			if err := tt.step.Play(t.Context(), r); err != nil {
				got, _, _ = strings.Cut(err.Error(), " (nothing changed for 20s)")
			}
			if got != tt.err || tt.step.Name != tt.name {
				t.Errorf("%s, %q: the error is %q, want %q", tt.step.Name, tt.name, got, tt.err)
			}
		})
	}
}

// The name of an object that is created follows from its content in any encoding, also of an unknown kind.
func TestNameIn(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a"}
	protobuf := func(kind string, obj interface{ Marshal() ([]byte, error) }) []byte {
		raw, err := obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "a.example/v1", Kind: kind}, Raw: raw}
		rest, err := envelope.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append(slices.Clone(protobufPrefix), rest...)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: meta}
	crd.Spec.Group = "a.example"
	for _, tt := range []struct {
		body []byte
		want string
	}{
		{[]byte(`{"kind":"Thing","metadata":{"name":"a"}}`), "a"},
		{[]byte(`{"kind":"Thing","metadata":{"generateName":"a-"}}`), "a-*"},
		{[]byte("kind: Thing\nmetadata:\n  name: a\n"), "a"},
		{protobuf("CustomResourceDefinition", crd), "a"},
		{protobuf("Pod", &corev1.Pod{ObjectMeta: meta}), "a"},
		{[]byte("k8s\x00?"), ""},
	} {
		if got := (request{verb: "create"}).nameIn(tt.body); got != tt.want {
			t.Errorf("the name in %.60q is %q, want %q", tt.body, got, tt.want)
		}
	}
}

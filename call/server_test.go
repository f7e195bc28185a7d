package call_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// newServer starts an API server with faults, and a client for it, on the clock of the bubble.
func newServer(t fataler) (*apiserver.Server, *call.Client, func()) {
	s, err := apiserver.New(apiserver.Options{Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := call.New(call.Options{Config: s.Config(), Rand: func() float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	return s, c, func() { c.Close(); s.Close() }
}

type fataler interface{ Fatal(...any) }

// A write succeeds in spite of faults in some tries, and its effect is there exactly once.
func TestWritesAreExactAgainstAServer(t *testing.T) {
	t.Parallel()
	verbs := []call.Verb{call.VerbCreate, call.VerbUpdate, call.VerbPatch, call.VerbApply, call.VerbDelete}
	faults := map[string]func() apiserver.Fault{
		"lost before": apiserver.Drop, "lost after": apiserver.DropAfter, "black hole": apiserver.BlackHole,
		"503": func() apiserver.Fault { return apiserver.Answer(apiserver.Failure(503)) },
		"429": func() apiserver.Fault { return apiserver.Answer(apiserver.TooManyRequests(2)) },
		"500": func() apiserver.Fault { return apiserver.Answer(apiserver.Failure(500)) },
	}
	names := []string{"lost before", "lost after", "black hole", "503", "429", "500"}
	rapid.Check(t, func(rt *rapid.T) {
		verb := rapid.SampledFrom(verbs).Draw(rt, "verb")
		var plan []string
		for i := range rapid.IntRange(0, 5).Draw(rt, "faults") {
			plan = append(plan, rapid.SampledFrom(names).Draw(rt, fmt.Sprint("fault ", i)))
		}
		synctest.Test(t, func(t *testing.T) {
			s, c, stop := newServer(t)
			defer stop()
			obj := &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}, Data: map[string]string{"k": "old"},
			}
			if verb != call.VerbCreate {
				put, err := s.Put(obj)
				if err != nil {
					t.Fatal(err)
				}
				obj.ResourceVersion, obj.UID = put.GetResourceVersion(), put.GetUID()
			}
			before := s.Revision()
			obj.Data["k"] = "new"
			r := call.Request{Verb: verb, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web", Object: obj}
			switch verb {
			case call.VerbPatch:
				r.Object, r.PatchType = nil, types.MergePatchType
				r.Body = []byte(`{"metadata":{"resourceVersion":"` + obj.ResourceVersion + `"},"data":{"k":"new"}}`)
			case call.VerbApply:
				r.Query = map[string][]string{"fieldManager": {"test"}, "force": {"true"}}
				obj.ResourceVersion, obj.UID = "", ""
			case call.VerbDelete:
				r.Object = nil
			}
			match := apiserver.Match{Verb: string(verb), Resource: "configmaps"}
			if verb == call.VerbApply {
				match.Verb = "patch"
			}
			for i, fault := range plan {
				m := match
				m.Nth = i + 1
				s.On(m, faults[fault]())
			}
			a, err := call.Do(t.Context(), c, r, call.Policy{Timeout: time.Second})
			if err != nil {
				t.Fatalf("%s with %v failed: %v", verb, plan, err)
			}
			live, err := s.Object(configMaps, "a", "web")
			if verb == call.VerbDelete {
				if !apierrors.IsNotFound(err) && live != nil {
					t.Fatalf("%s with %v: the object is still there: %v, %v", verb, plan, live, err)
				}
			} else {
				var got corev1.ConfigMap
				if err := json.Unmarshal(a.Raw, &got); err != nil || got.Data["k"] != "new" ||
					got.ResourceVersion != live.GetResourceVersion() {
					t.Fatalf("%s with %v: answer %+v, %v; live %v", verb, plan, got, err, live)
				}
			}
			if n := s.Revision() - before; n != 1 {
				t.Fatalf("%s with %v changed the server %d times, want 1", verb, plan, n)
			}
		})
	})
}

func TestGeneratedNamesAreNotDoubled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c, stop := newServer(t)
		defer stop()
		s.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.DropAfter())
		_, err := call.Do(t.Context(), c, call.Request{
			Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
			Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}},
		}, call.Policy{})
		if !errors.Is(err, call.ErrOutcomeUnknown) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if objs, err := s.Objects(configMaps); err != nil || len(objs) != 1 {
			t.Errorf("%d objects, %v; want 1", len(objs), err)
		}
	})
}

func TestListAgainstAServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c, stop := newServer(t)
		defer stop()
		for i := range 120 {
			if _, err := s.Put(&corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("cm-%03d", i)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		s.On(apiserver.Match{Verb: "list", Page: 3, Times: 1}, apiserver.ExpireContinue(true))
		for _, accept := range []string{call.JSON, call.Protobuf} {
			seen := map[string]int{}
			for cm, err := range call.List[corev1.ConfigMap](t.Context(), c,
				call.Request{Resource: configMaps, Namespace: "a", Accept: accept}, call.Policy{}) {
				if err != nil {
					t.Fatal(err)
				}
				seen[cm.Name]++
			}
			if len(seen) != 120 {
				t.Errorf("%s: %d objects, want 120", accept, len(seen))
			}
			for name, n := range seen {
				if n != 1 {
					t.Errorf("%s was yielded %d times", name, n)
				}
			}
		}
	})
}

// The first try of a write that removes a field is lost, before or after its execution. Another client changes the
// object meanwhile. The write succeeds only if the field is gone.
func TestLostRemovals(t *testing.T) {
	t.Parallel()
	for _, verb := range []call.Verb{call.VerbUpdate, call.VerbPatch, call.VerbApply} {
		for lost, fault := range map[string]apiserver.Fault{"before": apiserver.Drop(), "after": apiserver.DropAfter()} {
			t.Run(string(verb)+" lost "+lost, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var foreign func()
					s, err := apiserver.New(apiserver.Options{Pipe: true})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					c, err := call.New(call.Options{Config: s.Config(), Rand: func() float64 { foreign(); return 1 }})
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					foreign = func() {}
					apply := call.Request{
						Verb: call.VerbApply, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web",
						Query: map[string][]string{"fieldManager": {"us"}},
						Body:  []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"keep":"1","drop":"2"}}`),
					}
					a, err := call.Do(t.Context(), c, apply, call.Policy{})
					if err != nil {
						t.Fatal(err)
					}
					var cm corev1.ConfigMap
					if err := a.Into(&cm); err != nil {
						t.Fatal(err)
					}
					foreign = func() { // between the two tries
						foreign = func() {}
						live, err := s.Object(configMaps, "a", "web")
						if err != nil {
							t.Fatal(err)
						}
						live.SetLabels(map[string]string{"by": "others"})
						if _, err := s.Put(live); err != nil {
							t.Fatal(err)
						}
					}
					r := apply
					r.Verb = verb
					switch verb {
					case call.VerbApply:
						r.Body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","resourceVersion":"` +
							cm.ResourceVersion + `"},"data":{"keep":"1"}}`)
					case call.VerbUpdate:
						delete(cm.Data, "drop")
						r.Object, r.Body = &cm, nil
					case call.VerbPatch:
						r.PatchType = types.MergePatchType
						r.Body = []byte(`{"metadata":{"resourceVersion":"` + cm.ResourceVersion + `"},"data":{"drop":null}}`)
					}
					method := string(verb)
					if verb == call.VerbApply {
						method = "patch"
					}
					s.On(apiserver.Match{Verb: method, Resource: "configmaps", Times: 1}, fault)
					a, err = call.Do(t.Context(), c, r, call.Policy{})
					live, liveErr := s.Object(configMaps, "a", "web")
					if liveErr != nil {
						t.Fatal(liveErr)
					}
					_, there, _ := unstructured.NestedString(live.Object, "data", "drop")
					switch {
					case err == nil && there:
						t.Errorf("%s succeeded (%+v), and the removed field still exists: %v", verb, a, live.Object)
					case lost == "before" && !apierrors.IsConflict(err):
						t.Errorf("got %v, want a conflict", err)
					case lost == "after" && verb != call.VerbUpdate && (err != nil || !a.Recovered):
						t.Errorf("got %+v, %v, want a recovered success", a, err)
					case lost == "after" && verb == call.VerbUpdate && !apierrors.IsConflict(err):
						t.Errorf("got %v, want a conflict, since the update would remove the label", err)
					}
				})
			})
		}
	}
}

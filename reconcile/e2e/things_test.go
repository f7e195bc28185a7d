package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/flow"
	v1 "github.com/fairlead-io/fairlead/internal/testbed/things/v1"
)

// definition is the CustomResourceDefinition of Thing, as controller-gen generates it.
var definition struct {
	sync.Once
	yaml []byte
	err  error
}

// installThings generates a definition from the Go types with the pinned controller-gen, and installs it.
func installThings(t *testing.T) {
	t.Helper()
	definition.Do(func() {
		tool := filepath.Join(t.TempDir(), "controller-gen")
		build := exec.CommandContext(t.Context(), "go", "-C", "../../tools", "build", "-o", tool,
			"sigs.k8s.io/controller-tools/cmd/controller-gen")
		if out, err := build.CombinedOutput(); err != nil {
			definition.err = fmt.Errorf("cannot build controller-gen: %w: %s", err, out)
			return
		}
		var problems bytes.Buffer
		generate := exec.CommandContext(t.Context(), tool, "crd", "paths=../../internal/testbed/things/v1", "output:stdout")
		generate.Stderr = &problems
		if definition.yaml, definition.err = generate.Output(); definition.err != nil {
			definition.err = fmt.Errorf("cannot generate: %w: %s", definition.err, &problems)
		}
	})
	if definition.err != nil {
		t.Fatal(definition.err)
	}
	env.InstallCRDs(t, clustertest.CRDsIn(fstest.MapFS{"things.yaml": {Data: definition.yaml}}))
}

// thingsClient returns the client of a user, without a cache, with Thing in its scheme.
func thingsClient(t *testing.T, owner string) *client.Client {
	t.Helper()
	scheme, err := v1.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Config: env.Config(t), Scheme: scheme, FieldOwner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func thing(namespace, name string) *v1.Thing {
	return &v1.Thing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// The generated schema keeps every embedded field of Fairlead in its original form.
func TestEmbeddedTypes(t *testing.T) {
	installThings(t)
	c, namespace := thingsClient(t, "operator"), env.Namespace(t)
	at := time.Date(2026, 11, 22, 10, 30, 0, 123456789, time.UTC)
	position := flow.Position{
		Flow: "bring-up", Version: 2, Generation: 7, Step: "servers/wait", Reached: "servers/ready", Reason: "await",
		Attempt: 3,
		Begun:   at, Started: at.Add(time.Minute), Wake: at.Add(time.Hour), Deadline: at.Add(2 * time.Hour),
		Checkpoint: json.RawMessage(`{"a":[1,{"b":"c"}],"big":9007199254740993}`), Token: "t", Ended: true, Err: "no",
		TimedOut: true, Left: &flow.Place{Step: "servers", Attempt: 1, Started: at}, Last: true, Returns: true,
		Else: "handler",
		Back: []flow.Place{{Step: "servers", Started: at}, {Step: "detour", Attempt: 2, Started: at.Add(time.Second)}},
	}
	since := metav1.NewTime(at.Truncate(time.Second).Local())
	slot := alloc.Slot{Key: "k", Since: &since, Value: "v", Releasing: true, Released: 4}
	// the smallest position
	least := flow.Position{Flow: "bring-up", Step: "servers", Begun: at, Started: at, Token: "t"}
	want := v1.ThingStatus{
		Flow: &position, History: []flow.Position{least}, Slots: alloc.Slots{"public-ip": slot, "empty": {}}, Slot: &slot,
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Up", Message: "it is",
			ObservedGeneration: 7, LastTransitionTime: since,
		}},
	}
	for _, checkpoint := range []string{`[1,"a"]`, `"text"`, `7`, `-0.25`, `true`, `{}`} {
		p := least
		p.Checkpoint = json.RawMessage(checkpoint)
		want.History = append(want.History, p)
	}
	own := thing(namespace, "web")
	if err := c.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	own.Status = want
	if err := c.Status().Update(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	read := thing("", "")
	if err := c.Get(t.Context(), client.Key{Namespace: namespace, Name: "web"}, read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read.Status, cmp.Transformer("checkpoint",
		func(raw json.RawMessage) string { return string(raw) })); diff != "" {
		t.Error(diff)
	}
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Thing"))
	if err := c.Get(t.Context(), client.Key{Namespace: namespace, Name: "web"}, raw); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(t, want), plain(t, raw.Object["status"])); diff != "" {
		t.Errorf("the stored object differs from the sent one: %s", diff)
	}
}

// plain returns a value as decoded JSON.
func plain(t *testing.T, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A generated schema keeps the position of a fiber.
func TestPositionInAGeneratedSchema(t *testing.T) {
	installThings(t)
	c, own := thingsClient(t, "operator"), thing(env.Namespace(t), "web")
	if err := c.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	positions := client.NewStatusPosition(c, own, func(o *v1.Thing) **flow.Position { return &o.Status.Flow })
	at := time.Date(2026, 11, 22, 10, 30, 0, 5, time.UTC)
	for _, want := range []flow.Position{
		{Flow: "f", Step: "one", Begun: at, Started: at, Token: "t", Checkpoint: json.RawMessage(`{"seen":["a"]}`)},
		{
			Flow: "f", Step: "two", Begun: at, Started: at, Token: "t", Wake: at.Add(time.Hour),
			Checkpoint: json.RawMessage(`3`),
		},
		{Flow: "f", Step: "three", Begun: at, Started: at, Token: "t"},
	} {
		if err := positions.Save(t.Context(), "", want); err != nil {
			t.Fatal(err)
		}
		got, found, err := positions.Load(t.Context(), "")
		if err != nil || !found {
			t.Fatalf("found %v, %v", found, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

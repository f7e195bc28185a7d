package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func nameOf(cm *corev1.ConfigMap) []string { return []string{cm.Name} }

// TestDeclareIndex: every store of the kind has the index, whether opened before or after the declaration, and the
// cache watches the kind.
func TestDeclareIndex(t *testing.T) {
	t.Parallel()
	c, server := idleCache(t, -1)
	before, err := c.Acquire(configMapKind, source.Namespaces("ns"))
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := c.Open(store.Request{
		Kind: configMapKind, Content: store.Content{Metadata: true}, Options: []source.Option{source.Labels("a=b")},
	})
	if err != nil {
		t.Fatal(err)
	}
	kind, err := store.DeclareIndex(c, "name", "here.go:1", nameOf)
	if err != nil || kind != configMapKind {
		t.Fatalf("declared for %v, %v", kind, err)
	}
	if names := c.UntriedIndexes(); len(names) != 1 || !strings.Contains(names[0], `"name" of ConfigMap`) {
		t.Errorf("untried are %v", names)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	if err := c.AwaitIndexes(ctx); err != nil {
		t.Fatal(err)
	}
	if names := c.UntriedIndexes(); len(names) != 0 {
		t.Errorf("untried are %v", names)
	}
	server.watches(t, map[string]int{
		"/api/v1/configmaps?": 1, "/api/v1/namespaces/ns/configmaps?": 1, "/api/v1/configmaps?a=b": 1,
	})
	own, err := c.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	later, err := c.Acquire(configMapKind, source.Labels("x=y"))
	if err != nil {
		t.Fatal(err)
	}
	<-before.Synced()
	<-later.Synced()
	for what, h := range map[string]*store.Handle{"earlier": before, "own": own, "later": later} {
		if n := len(slices.Collect(h.Snapshot().Index("name", "a"))); n != 1 {
			t.Errorf("the %s store has %d objects in the index", what, n)
		}
	}
	if metadata.Snapshot().HasIndex("name") {
		t.Error("a store of metadata has an index of whole objects")
	}
	if _, err := store.DeclareIndex(c, "late", "here.go:2", nameOf); err == nil ||
		!strings.Contains(err.Error(), "the cache runs already") {
		t.Errorf("during the run: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDeclareIndexMistakes: a name that a store has already is an error, and the declaration names the earlier one.
func TestDeclareIndexMistakes(t *testing.T) {
	t.Parallel()
	c, _ := idleCache(t, -1)
	h, err := c.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if err := store.IndexBy(store.Of[corev1.ConfigMap](h.Store), "taken", nameOf); err != nil {
		t.Fatal(err)
	}
	if _, err := store.DeclareIndex(c, "name", "here.go:1", nameOf); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"": "the name is empty", "label": "every store has an index of that name",
		"name":  "ConfigMap has an index of that name, declared at here.go:1",
		"taken": `cannot add index "taken" to the store of configmaps: the name is in use`,
	} {
		if _, err := store.DeclareIndex(c, name, "here.go:2", nameOf); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", name, err, want)
		}
	}
}

// TestAwaitIndexesEnds: AwaitIndexes ends with its context, and returns at once without declared indexes.
func TestAwaitIndexesEnds(t *testing.T) {
	t.Parallel()
	c, _ := idleCache(t, -1)
	if err := c.AwaitIndexes(t.Context()); err != nil {
		t.Errorf("without an index: %v", err)
	}
	if _, err := store.DeclareIndex(c, "name", "here.go:1", nameOf); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("over"))
	if err := c.AwaitIndexes(ctx); fmt.Sprint(err) != "over" {
		t.Errorf("error %v", err)
	}
}

// TestIndexByOfNoStore: an index of a view without a store is an error, not a view without objects.
func TestIndexByOfNoStore(t *testing.T) {
	t.Parallel()
	for what, v := range map[string]store.View[corev1.ConfigMap]{
		"a zero view": {}, "a nil store": store.Of[corev1.ConfigMap](nil),
	} {
		if err := store.IndexBy(v, "name", nameOf); err == nil || !strings.Contains(err.Error(),
			`cannot add index "name": the view has no store`) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

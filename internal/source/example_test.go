package source_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

// printer is a minimal Sink: it stores nothing and prints each change.
type printer struct{ synced, done func() }

func (p printer) Known() source.Known         { return source.Known{} } // empty: begin with a list
func (p printer) Replace() source.Replacement { return p }
func (p printer) Apply(t source.ChangeType, o *source.Object) error {
	fmt.Printf("%s %s/%s\n", t, o.Header.Namespace, o.Header.Name)
	if t == source.Deleted {
		p.done()
	}
	return nil
}
func (p printer) Bookmark(string)                 {}
func (p printer) Quarantine(q source.Quarantined) { fmt.Println("cannot read", q.Key(), q.Err) }
func (p printer) Report(s source.Status)          {}
func (p printer) Put(o *source.Object) error {
	fmt.Printf("listed %s/%s\n", o.Header.Namespace, o.Header.Name)
	return nil
}
func (p printer) Remove(*source.Object) {}
func (p printer) Missing() (int, int)   { return 0, 0 }
func (p printer) Commit(source.Commit)  { p.synced() }
func (p printer) Abort()                {}

func Example() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	settings := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"},
	}
	if _, err := server.Put(settings); err != nil {
		panic(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	sink := printer{
		synced: func() {
			if err := server.Remove(gvr, "team-a", "settings"); err != nil {
				panic(err)
			}
		},
		done: cancel,
	}
	src, err := source.New(source.Config{REST: server.Config(), Resource: gvr, Namespaces: []string{"team-a"}},
		func(namespace string) source.Sink { return sink })
	if err != nil {
		panic(err)
	}
	if err := src.Run(ctx); err != nil {
		panic(err)
	}
	fmt.Println(src.Status()[0].Phase)
	// Output:
	// listed team-a/settings
	// DELETED team-a/settings
	// Stopped
}

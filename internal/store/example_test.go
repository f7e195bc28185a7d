package store_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A source fills a store, views read it, and cursors follow it.
func Example() {
	s := store.New(store.Options{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Kind:     corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	})
	defer s.Close()

	// A source does this. A program calls source.New(source.Config{...}, s.Sink) and Run.
	sink := s.Sink("")
	initial := sink.Replace()
	_ = initial.Put(
		parse(
			`{"metadata":{"namespace":"team-a","name":"web","uid":"1","resourceVersion":"5","labels":{"app":"web"}},"data":{"color":"red"}}`,
		),
	)
	initial.Commit(source.Commit{Version: "9"})
	_ = sink.Apply(source.Modified,
		parse(
			`{"metadata":{"namespace":"team-a","name":"web","uid":"1","resourceVersion":"10","labels":{"app":"web"}},"data":{"color":"blue"}}`,
		))

	maps := store.Of[corev1.ConfigMap](s)
	for key, m := range maps.Index(store.IndexLabel, "app=web") {
		fmt.Println(key, m.Data["color"])
	}

	c := s.Subscribe(store.SubscribeOptions{})
	defer c.Close()
	for range 2 {
		e, _ := c.Next(context.Background())
		fmt.Println(e.Type, e.Key)
	}
	// Output:
	// team-a/web blue
	// ADDED team-a/web
	// SYNCED
}

// A drainer follows a store in batches: first the present objects, then the changes. Run drains on the caller's
// goroutine. With an Owner, the drainer starts a goroutine when there are events to take.
func ExampleStore_Drain() {
	s := store.New(store.Options{})
	defer s.Close()
	sink := s.Sink("")
	initial := sink.Replace()
	_ = initial.Put(parse(`{"metadata":{"namespace":"ns","name":"web","uid":"1","resourceVersion":"5"}}`))
	initial.Commit(source.Commit{Version: "9"})
	_ = sink.Apply(source.Modified, parse(`{"metadata":{"namespace":"ns","name":"web","uid":"1","resourceVersion":"10"}}`))

	changes := s.Drain(store.DrainOptions{Consume: func(events []store.Event) (more bool) {
		for _, e := range events {
			fmt.Printf("%s %q\n", e.Type, e.Key)
		}
		return events[len(events)-1].Type != store.Synced // a program would return true
	}})
	fmt.Println(changes.Run(context.Background()))
	// Output:
	// ADDED "ns/web"
	// SYNCED ""
	// <nil>
}

// A program can add an index over the objects of a view at any time.
func ExampleIndexBy() {
	s := store.New(store.Options{})
	defer s.Close()
	pods := store.Of[corev1.Pod](s)
	_ = store.IndexBy(pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	_ = s.Sink("").Apply(source.Added,
		parse(`{"metadata":{"namespace":"ns","name":"web-0","uid":"1","resourceVersion":"5"},"spec":{"nodeName":"n1"}}`))
	for key := range pods.Index("node", "n1") {
		fmt.Println(key)
	}
	// Output: ns/web-0
}

// A cache makes stores on demand. Requests for the same objects share one watch.
func ExampleCache() {
	cache, err := store.NewCache(store.CacheOptions{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error)
	go func() { done <- cache.Run(ctx) }()
	handle, err := cache.Open(store.Request{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespaced: true,
		Options: []source.Option{source.Namespaces("team-a")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(handle.HasSynced(), handle.Len())
	handle.Release()
	stop()
	<-done
	// Output: false 0
}

func parse(raw string) *source.Object {
	o := &source.Object{Raw: []byte(raw)}
	if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
		panic(err)
	}
	return o
}

package cache_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A program without a runtime watches the pods of one namespace and finds them by their node.
func Example() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.Put(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web-0"},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	}); err != nil {
		panic(err)
	}

	c, err := cache.NewCache(cache.CacheOptions{Config: server.Config()})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()

	handle, err := cache.AcquireFor[corev1.Pod](c, cache.Namespaces("team-a"))
	if err != nil {
		panic(err)
	}
	<-handle.Synced()
	pods := cache.Of[corev1.Pod](handle.Store)
	if err := cache.IndexBy(pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }); err != nil {
		panic(err)
	}
	for key := range pods.Index("node", "n1") {
		fmt.Println(key)
	}
	handle.Release()
	stop()
	fmt.Println(<-done)
	// Output:
	// team-a/web-0
	// <nil>
}

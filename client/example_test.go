package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/store"
)

// exampleServer returns a server in memory and a client. The client reads from a cache of the config maps of all
// namespaces.
func exampleServer(ctx context.Context) (server *apiserver.Server, c *client.Client, stop func()) {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stores, err := cache.NewCache(cache.CacheOptions{Config: server.Config(), Scheme: scheme.Scheme})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- stores.Run(ctx) }()
	watched, err := stores.Open(store.Request{
		Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Namespaced: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	<-watched.Synced()
	if c, err = client.New(client.Options{Config: server.Config(), Cache: stores}); err != nil {
		log.Fatal(err)
	}
	return server, c, func() {
		c.Close()
		watched.Release()
		cancel()
		<-stopped
		server.Close()
	}
}

// A write is read back at once, before the watch delivers it, and without a request.
func Example() {
	ctx := context.Background()
	server, c, stop := exampleServer(ctx)
	defer stop()

	held := server.HoldEvents(apiserver.Match{Verb: "watch"}) // the watch lags
	defer held.Release()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"},
		Data:       map[string]string{"colour": "green"},
	}
	if err := c.Create(ctx, cm); err != nil {
		log.Fatal(err)
	}
	shared, err := client.Get[corev1.ConfigMap](ctx, c, client.KeyOf(cm))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(shared.Name, shared.Data["colour"])

	err = client.Modify(ctx, c, cm, func(cm *corev1.ConfigMap) error {
		cm.Data["colour"] = "blue"
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for cm, err := range client.List[corev1.ConfigMap](ctx, c, client.InNamespace("team-a")) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cm.Name, cm.Data["colour"])
	}
	// Output:
	// web green
	// web blue
}

// OwnedBy finds the children of an object by their owner references, without a request and without a scan.
func ExampleOwnedBy() {
	ctx := context.Background()
	_, c, stop := exampleServer(ctx)
	defer stop()
	parent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "parent"}}
	if err := c.Create(ctx, parent); err != nil {
		log.Fatal(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "child", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: parent.Name, UID: parent.UID},
		},
	}}
	if err := c.Create(ctx, child); err != nil {
		log.Fatal(err)
	}
	for cm, err := range client.List[corev1.ConfigMap](ctx, c, client.OwnedBy(parent)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cm.Name)
	}
	// Output:
	// child
}

// An operator applies its own fields and leaves those of others unchanged.
func ExampleClient_Apply() {
	ctx := context.Background()
	_, c, stop := exampleServer(ctx)
	defer stop()
	theirs := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"},
		Data:       map[string]string{"colour": "green"},
	}
	if err := c.Create(ctx, theirs, client.Owner("a-user")); err != nil {
		log.Fatal(err)
	}
	if err := c.Apply(ctx, corev1ac.ConfigMap("web", "team-a").WithData(map[string]string{"size": "7"})); err != nil {
		log.Fatal(err)
	}
	cm, err := client.Get[corev1.ConfigMap](ctx, c, client.KeyOf(theirs)) // a read shows it at once
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cm.Data)
	err = c.Apply(ctx, cm.DeepCopy())
	fmt.Println(errors.Is(err, client.ErrWasRead))
	// Output:
	// map[colour:green size:7]
	// true
}

package client_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/store"
)

// A write is read back at once although the watch has not brought it, and without a request.
func Example() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())

	cache, err := store.NewCache(store.CacheOptions{Config: server.Config(), Scheme: scheme.Scheme})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- cache.Run(ctx) }()
	defer func() { stop(); <-stopped }()
	watched, err := cache.Open(store.Request{
		Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespaced: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer watched.Release()
	<-watched.Synced()

	c, err := client.New(client.Options{Config: server.Config(), Cache: cache})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	held := server.HoldEvents(apiserver.Match{Verb: "watch"}) // the watch lags
	defer held.Release()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"}, Data: map[string]string{"colour": "green"}}
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

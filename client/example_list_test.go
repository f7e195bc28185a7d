package client_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A list after own writes shows them. There is nothing to wait for or to count, though the watch has delivered none of
// them.
func ExampleList() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	stores, err := cache.NewCache(cache.CacheOptions{Config: server.Config()})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- stores.Run(ctx) }()
	defer func() { stop(); <-stopped }()
	watched, err := cache.AcquireFor[corev1.ConfigMap](stores)
	if err != nil {
		log.Fatal(err)
	}
	defer watched.Release()
	<-watched.Synced()
	c, err := client.New(client.Options{Config: server.Config(), Cache: stores})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	held := server.HoldEvents(apiserver.Match{Verb: "watch"}) // the watch lags
	defer held.Release()

	// scale creates or deletes shards up to the wanted number. It can be called repeatedly and never creates too many.
	scale := func(wanted int) error {
		var names []string
		for cm, err := range client.List[corev1.ConfigMap](ctx, c, client.InNamespace("team-a"),
			client.Labels("part-of=shards")) {
			if err != nil {
				return err
			}
			names = append(names, cm.Name)
		}
		slices.Sort(names)
		fmt.Println("there are", names)
		for i := len(names); i < wanted; i++ {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: fmt.Sprint("shard-", i), Labels: map[string]string{"part-of": "shards"},
			}}
			if err := c.Create(ctx, cm); err != nil {
				return err
			}
		}
		for i := wanted; i < len(names); i++ {
			if err := c.Delete(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: names[i]},
			}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, wanted := range []int{2, 3, 1, 1} {
		if err := scale(wanted); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// there are []
	// there are [shard-0 shard-1]
	// there are [shard-0 shard-1 shard-2]
	// there are [shard-0]
}

package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A program writes with a clientset of client-go. It reads its writes from a store at once, before the watch delivers
// them.
func ExampleOverlay() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	stores, err := cache.NewCache(cache.CacheOptions{Config: server.Config()})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- stores.Run(ctx) }()
	configMaps, err := stores.Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { configMaps.Release(); cancel(); <-stopped }()
	<-configMaps.Synced()
	held := server.HoldEvents(apiserver.Match{Verb: "watch"}) // the watch lags
	defer held.Release()

	config := rest.CopyConfig(server.Config()) // a copy, since the stores' configuration only reads
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return client.Overlay(next, stores, client.OverlayOptions{})
	})
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	web := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"}, Data: map[string]string{"colour": "green"},
	}
	if _, err := clientset.CoreV1().ConfigMaps("team-a").Create(ctx, web, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}

	read, err := cache.Of[corev1.ConfigMap](configMaps.Store).Get(cache.Key{Namespace: "team-a", Name: "web"})
	fmt.Println(read.Data["colour"], err)

	if err := clientset.CoreV1().ConfigMaps("team-a").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
	_, there := configMaps.Get(cache.Key{Namespace: "team-a", Name: "web"})
	fmt.Println(there)
	// Output:
	// green <nil>
	// false
}

package watchtest_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// A connection breaks in the middle of an event, and the subscriber still gets each change once.
func Example() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	put := func(colour string) {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"},
			Data:       map[string]string{"colour": colour},
		}
		if _, err := server.Put(cm); err != nil {
			panic(err)
		}
	}
	put("green")
	watched, err := watchtest.Start(source.Config{
		REST: server.Config(), BackoffBase: time.Millisecond,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	}, store.Options{Namespaced: true})
	if err != nil {
		panic(err)
	}
	defer watched.Stop()
	recorder := watched.Record("mine")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wait := func(n int) {
		if err := recorder.Wait(ctx, func(r watchtest.Recording) bool { return len(r.Events) >= n }); err != nil {
			panic(err)
		}
	}
	wait(2)
	server.On(apiserver.Match{Verb: "watch", Times: 1}, apiserver.Cut(60))
	server.DropConnections()
	put("blue")
	wait(3)
	for _, e := range recorder.Recording().Events {
		fmt.Println(e)
	}
	_, violations := recorder.Recording().Check()
	fmt.Println("violations:", len(violations))
	// Output:
	// ADDED team-a/settings@2 initial
	// SYNCED 1
	// MODIFIED team-a/settings@3
	// violations: 0
}

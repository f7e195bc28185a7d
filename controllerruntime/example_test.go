package controllerruntime_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// server returns the configuration of a server for examples.
func server() (cfg *rest.Config, stop func()) {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return s.Config(), s.Close
}

// With these two lines the manager's client reads its own writes at once.
func Example() {
	cfg, stop := server()
	defer stop()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		NewCache:  controllerruntime.NewCache,
		NewClient: controllerruntime.NewClient,
		Metrics:   metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	mgr.GetCache().WaitForCacheSync(ctx)

	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "color"},
		Data:       map[string]string{"color": "green"},
	}
	if err := mgr.GetClient().Create(ctx, cm); err != nil {
		log.Fatal(err)
	}
	var got corev1.ConfigMap
	if err := mgr.GetClient().Get(ctx, client.ObjectKeyFromObject(cm), &got); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Data["color"])
	cancel()
	fmt.Println(<-ended)
	// Output:
	// green
	// <nil>
}

// One value of Options creates the cache and the client.
func ExampleOptions() {
	fair := controllerruntime.Options{
		Drop:     map[schema.GroupKind][]string{{Kind: "Secret"}: {"data"}}, // keep only the metadata of Secrets
		Registry: metrics.Registry,
	}
	cfg, stop := server()
	defer stop()
	_, err := ctrl.NewManager(cfg, ctrl.Options{
		NewCache: fair.NewCache, NewClient: fair.NewClient, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	fmt.Println(err)
	// Output: <nil>
}

// A program of client-go alone.
func ExampleUse() {
	cfg, stop := server()
	defer stop()
	fair, err := controllerruntime.NewInformers(cfg, nil)
	if err != nil {
		log.Fatal(err)
	}
	cfg.Wrap(fair.Overlay) // informers see writes of this configuration's clients at once
	clientset := kubernetes.NewForConfigOrDie(cfg)
	factory := informers.NewSharedInformerFactory(clientset, 0)
	if err := controllerruntime.Use(fair, factory, []runtime.Object{&corev1.ConfigMap{}}); err != nil {
		log.Fatal(err)
	}
	lister := factory.Core().V1().ConfigMaps().Lister()

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- fair.Run(ctx) }()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "color"}, Data: map[string]string{"color": "green"}}
	if _, err := clientset.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	got, err := lister.ConfigMaps("default").Get("color")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Data["color"])
	cancel()
	factory.Shutdown()
	fmt.Println(<-ended)
	// Output:
	// green
	// <nil>
}

package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// testServer returns a server with two ConfigMaps.
func testServer() *apiserver.Server {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	for _, team := range []string{"team-a", "team-c"} {
		if _, err := s.Put(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "settings", Labels: map[string]string{"app": "web"}},
			Data:       map[string]string{"colour": "blue"},
		}); err != nil {
			panic(err)
		}
	}
	return s
}

// A program declares its sources and observers, then runs.
func Example() {
	cluster := testServer()
	defer cluster.Close()
	ctx, stop := context.WithCancel(context.Background())

	CertainConfigMaps := observe.Selector("certain-configmaps") // usually a package variable

	rt := fairlead.New(cluster.Config())
	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps, cache.Namespaces("team-a", "team-b"),
		cache.Labels("app=web"))
	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
		if e.Type == observe.Synchronized {
			stop()
			return nil
		}
		fmt.Println(e.Type, e.Key, "was there before:", e.Initial, e.Object().Data)
		return nil
	})
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: Added team-a/settings was there before: true map[colour:blue]
}

// Run reports all mistakes at once, before the first request.
func ExampleRuntime_Run_mistakes() {
	rt := fairlead.New((&apiserver.Server{}).Config())
	observe.Source[corev1.ConfigMap](rt, "settings", cache.Labels("app in web"))
	observe.On(rt, "setings", func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })

	err := rt.Run(context.Background())
	fmt.Println(errors.Is(err, observe.ErrMalformedSelector), errors.Is(err, observe.ErrNoSource))
	// Output: true true
}

// Add runs a function beside the observers. It may read and write through the runtime's client.
func ExampleHost_Add() {
	cluster := testServer()
	defer cluster.Close()
	ctx, stop := context.WithCancel(context.Background())

	rt := fairlead.New(cluster.Config())
	observe.Source[corev1.ConfigMap](rt, "settings")
	settings := observe.Known[corev1.ConfigMap](rt, "settings")
	rt.Add("painter", func(ctx context.Context) error {
		defer stop()
		<-settings.Synced()
		key := cache.Key{Namespace: "team-a", Name: "settings"}
		err := client.Modify(ctx, rt.Client(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
			func(c *corev1.ConfigMap) error { c.Data["colour"] = "red"; return nil })
		if err != nil {
			return err
		}
		known, err := settings.Get(key) // sees the write, whatever the watch has delivered
		if err != nil {
			return err
		}
		fmt.Println(known.Data["colour"])
		return nil
	})
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: red
}

// Every replica answers requests from its cache, and only the leader works.
func ExampleHost_AddAlways() {
	cluster := testServer()
	defer cluster.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	rt := fairlead.New(cluster.Config(), fairlead.WithLeaderElection("team-a", "painters"))
	settings, err := cache.AcquireFor[corev1.ConfigMap](rt.Cache())
	if err != nil {
		fmt.Println(err)
		return
	}
	rt.AddAlways("api", func(ctx context.Context) error {
		defer settings.Release()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		return fairlead.Serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, settings.Len(), "settings")
		}))
	})
	rt.Add("painter", func(context.Context) error {
		fmt.Println("this replica leads")
		stop()
		return nil
	})
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: this replica leads
}

// The same declarations apply to two clusters.
func ExampleRuntime_Join() {
	home, abroad := testServer(), testServer()
	defer home.Close()
	defer abroad.Close()
	ctx, stop := context.WithCancel(context.Background())

	rt := fairlead.New(home.Config())
	settings := map[string]*observe.Collection[corev1.ConfigMap]{}
	for name, cluster := range map[string]*fairlead.Host{"home": rt.Host, "abroad": rt.Join("abroad", abroad.Config())} {
		observe.Source[corev1.ConfigMap](cluster, "settings")
		settings[name] = observe.Known[corev1.ConfigMap](cluster, "settings")
	}
	rt.Add("report", func(ctx context.Context) error {
		defer stop()
		if err := rt.WaitSynced(ctx); err != nil {
			return err
		}
		fmt.Println(settings["home"].Len(), "at home,", settings["abroad"].Len(), "abroad")
		return nil
	})
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 at home, 2 abroad
}

// A program may add pages to those of the runtime; see also WithListen.
func ExampleRuntime_Handle() {
	rt := fairlead.New((&apiserver.Server{}).Config())
	rt.Handle("/debug/greeting", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "hello")
	}))

	w := httptest.NewRecorder()
	rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/", nil))
	fmt.Println(strings.TrimSpace(w.Body.String()))
	// Output:
	// /debug/controllers
	// /debug/greeting
	// /debug/observers
	// /debug/pprof/
	// /debug/sources
}

// A reconciler lists objects by an index that is declared before Run.
func ExampleIndexField() {
	cluster := testServer()
	defer cluster.Close()
	ctx, stop := context.WithCancel(context.Background())

	rt := fairlead.New(cluster.Config())
	fairlead.IndexField(rt, "colour", func(m *corev1.ConfigMap) []string { return []string{m.Data["colour"]} })
	reconcile.New(rt, "settings", reconcile.Func[corev1.ConfigMap](
		func(ctx context.Context, _ *corev1.ConfigMap) (reconcile.Result, error) {
			defer stop()
			n := 0
			for _, err := range client.List[corev1.ConfigMap](ctx, rt.Client(), client.Index("colour", "blue")) {
				if err != nil {
					return reconcile.Retry(err)
				}
				n++
			}
			fmt.Println(n, "blue ones")
			return reconcile.Done, nil
		}), reconcile.Primary(reconcile.From(cache.Namespaces("team-a"))))
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: 2 blue ones
}

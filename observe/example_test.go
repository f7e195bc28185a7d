package observe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"

	"github.com/fairlead-io/fairlead/observe"
)

// demo runs declarations against a server with two ConfigMaps, blue and red, until all observers are synced. Programs
// use the fairlead runtime instead.
func demo(declare func(h observe.Host), running func()) {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	for _, colour := range []string{"blue", "red"} {
		c := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: colour},
			Data:       map[string]string{"colour": colour},
		}
		if _, err := server.Put(c); err != nil {
			panic(err)
		}
	}
	stores, err := cache.NewCache(cache.CacheOptions{Config: server.Config(), Scheme: scheme.Scheme, Mapper: testMapper()})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- stores.Run(ctx) }()
	r := observe.NewRegistry(observe.RegistryOptions{Scheme: scheme.Scheme, Stores: stores})
	declare(r)
	err = errors.Join(r.Start(ctx), r.WaitSynced(ctx))
	if running != nil {
		running()
	}
	err = errors.Join(err, r.Stop(ctx))
	cancel()
	if err = errors.Join(err, <-ended); err != nil {
		fmt.Println(err)
	}
}

func Example() {
	demo(func(h observe.Host) {
		colours := observe.Selector("colours") // usually a package variable
		observe.Source[corev1.ConfigMap](h, colours, cache.Namespaces("demo"), cache.Fields("metadata.name=blue"))
		observe.On(h, colours, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			fmt.Println(e.Type, e.Key)
			return nil
		})
	}, nil)
	// Output:
	// Added demo/blue
	// Synchronized
}

// A selector may be a set. Both sides must name the same set, in any order.
func ExampleAll() {
	production, secrets := observe.Selector("production"), observe.Selector("secrets")
	fmt.Println(observe.All(production, secrets) == observe.All(secrets, production))
	fmt.Println(observe.All(production, secrets) == production)
	// Output:
	// true
	// false
}

func ExampleOnly() {
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "colours")
		observe.On(h, "colours", func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			fmt.Println(e.Type)
			return nil
		}, observe.Only(observe.OnSynchronized|observe.OnDeleted))
	}, nil)
	// Output: Synchronized
}

// An async observer handles several keys at once. Synchronized still follows its initial objects.
func ExampleAsync() {
	demo(func(h observe.Host) {
		meet := make(chan string) // without a buffer: both calls are needed
		observe.Source[corev1.ConfigMap](h, "colours")
		observe.On(h, "colours", func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			switch e.Key.Name {
			case "blue":
				meet <- "blue meets"
			case "red":
				fmt.Println(<-meet, "red")
			default:
				fmt.Println(e.Type)
			}
			return nil
		}, observe.Async(2))
	}, nil)
	// Output:
	// blue meets red
	// Synchronized
}

func ExampleOnFailure() {
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "colours", cache.Fields("metadata.name=red"))
		observe.On(h, "colours", func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				panic("I cannot stand it") // is logged, and affects no other observer
			}
			fmt.Println(e.Type)
			return nil
		}, observe.OnFailure(observe.Skip, 0))
	}, nil)
	// Output: Synchronized
}

// A source can determine its options when it starts. A source without observers does not call the function.
func ExampleSourceFunc() {
	demo(func(h observe.Host) {
		observe.SourceFunc[corev1.ConfigMap](h, "colours", func(context.Context) ([]cache.Option, error) {
			fmt.Println("asked")
			return []cache.Option{cache.Namespaces("demo")}, nil
		})
		observe.SourceFunc[corev1.Secret](h, "unobserved", func(context.Context) ([]cache.Option, error) {
			fmt.Println("never asked")
			return nil, nil
		})
		observe.Known[corev1.ConfigMap](h, "colours")
	}, nil)
	// Output: asked
}

func ExampleKnown() {
	var colours *observe.Collection[corev1.ConfigMap]
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "colours")
		colours = observe.Known[corev1.ConfigMap](h, "colours")
	}, func() {
		blue, err := colours.Get(cache.Key{Namespace: "demo", Name: "blue"})
		fmt.Println(blue.Data["colour"], err)
		fmt.Println(len(maps.Collect(colours.All())), "colours")
	})
	// Output:
	// blue <nil>
	// 2 colours
}

func ExampleFilter() {
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "colours")
		observe.Filter(h, "short names", "colours", func(c *corev1.ConfigMap) bool { return len(c.Name) < 4 })
		observe.On(h, "short names", func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			fmt.Println(e.Type, e.Key)
			return nil
		})
	}, nil)
	// Output:
	// Added demo/red
	// Synchronized
}

func ExampleMap() {
	var got []string
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "colours")
		observe.Map(h, "shouts", "colours", func(c *corev1.ConfigMap) *corev1.Secret {
			return &corev1.Secret{StringData: map[string]string{"colour": strings.ToUpper(c.Data["colour"])}}
		})
		observe.On(h, "shouts", func(_ context.Context, e observe.Event[corev1.Secret]) error {
			if e.Type == observe.Added {
				got = append(got, e.Object().StringData["colour"])
			}
			return nil
		})
	}, nil)
	slices.Sort(got)
	fmt.Println(got)
	// Output: [BLUE RED]
}

func ExampleJoin() {
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "blue", cache.Fields("metadata.name=blue"))
		observe.Source[corev1.ConfigMap](h, "red", cache.Fields("metadata.name=red"))
		observe.Join[corev1.ConfigMap](h, "colours", "blue", "red")
		n := 0
		observe.On(h, "colours", func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Synchronized {
				fmt.Println(n, "colours")
			}
			n++
			return nil
		})
	}, nil)
	// Output: 2 colours
}

// An observer of objects of any type, which removes itself after an event.
func ExampleOnObject() {
	var self *observe.Observer
	demo(func(h observe.Host) {
		observe.Source[corev1.ConfigMap](h, "colours", cache.Fields("metadata.name=red"))
		self = observe.OnObject(h, "colours", func(_ context.Context, e observe.ObjectEvent) error {
			if e.Type == observe.Synchronized {
				self.Remove()
				return nil
			}
			fmt.Printf("%T %s\n", e.Object(), e.Object().GetName())
			return nil
		})
	}, nil)
	// Output: *v1.ConfigMap red
}

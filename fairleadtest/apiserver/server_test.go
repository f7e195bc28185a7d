package apiserver_test

import (
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts apiserver.Options) *apiserver.Server {
	t.Helper()
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func typed(t *testing.T, s *apiserver.Server) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name string, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Data: map[string]string{"k": data}}
}

// transports are the ways in which a server can be reached; every basic behaviour must hold on each.
func transports() map[string]apiserver.Options {
	return map[string]apiserver.Options{
		"http1": {}, "https": {TLS: true}, "http2": {HTTP2: true},
		"pipe": {Pipe: true}, "pipe http2": {Pipe: true, HTTP2: true},
	}
}

func TestTypedClientReadsWritesAndWatches(t *testing.T) {
	for name, opts := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, opts)
			c := typed(t, s).CoreV1().ConfigMaps("a")
			created, err := c.Create(t.Context(), configMap("x", "1"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if created.UID == "" || created.ResourceVersion == "" || created.CreationTimestamp.IsZero() {
				t.Errorf("metadata is not assigned: %+v", created.ObjectMeta)
			}
			w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			created.Data["k"] = "2"
			updated, err := c.Update(t.Context(), created, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
				e := <-w.ResultChan()
				cm, ok := e.Object.(*corev1.ConfigMap)
				if e.Type != want || !ok || cm.Data["k"] != "2" {
					t.Fatalf("event %s %v, want %s", e.Type, e.Object, want)
				}
				if (cm.ResourceVersion == updated.ResourceVersion) != (want == watch.Modified) {
					t.Errorf("%s carries version %s", want, cm.ResourceVersion)
				}
			}
			w.Stop()
			list, err := c.List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 0 || list.ResourceVersion == "" {
				t.Errorf("list: %v, %v", list, err)
			}
		})
	}
}

func typedFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

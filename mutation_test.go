package fairlead_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

func TestDetectMutation(t *testing.T) {
	t.Parallel()
	typed := func(change func(*corev1.ConfigMap)) func(observe.Host) {
		return func(h observe.Host) {
			observe.On(h, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type == observe.Added {
					change(e.Object())
				}
				return nil
			})
		}
	}
	spoil := func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"changed": "yes"} }
	for name, tc := range map[string]struct {
		reason  string
		options []fairlead.Option
		observe func(observe.Host)
		found   string // the key
	}{
		"reported": {
			"the only observer changes its object, which is not read again",
			[]fairlead.Option{fairlead.WithDetectMutation()},
			typed(spoil), "a/x",
		},
		"any type": {
			"changes of observers of any type are detected, too",
			[]fairlead.Option{fairlead.WithDetectMutation()},
			func(h observe.Host) {
				observe.OnObject(h, Maps, func(_ context.Context, e observe.ObjectEvent) error {
					if e.Type == observe.Added {
						e.Object().SetLabels(map[string]string{"changed": "yes"})
					}
					return nil
				})
			}, "a/x",
		},
		"innocent": {
			"a copy may be changed",
			[]fairlead.Option{fairlead.WithDetectMutation()},
			typed(func(cm *corev1.ConfigMap) { spoil(cm.DeepCopy()) }), "",
		},
		"off": {"detection costs time, so it is off by default", nil, typed(spoil), ""},
		"prior": {
			"the prior state is shared as well",
			[]fairlead.Option{fairlead.WithDetectMutation()},
			func(h observe.Host) {
				modified, done := 0, make(chan struct{}) // no other reader uses the first state any more
				observe.On(h, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Type == observe.Modified {
						if modified++; modified == 2 {
							close(done)
						}
					}
					return nil
				}, observe.Name("innocent"))
				var once sync.Once
				observe.On(h, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Type == observe.Modified {
						once.Do(func() { <-done; spoil(e.Prior()) })
					}
					return nil
				}, observe.Name("culprit"))
			}, "a/x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				put(t, s, "x")
				var log bytes.Buffer
				rt := fairlead.New(s.Config(), append(tc.options, fairlead.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
				observe.Source[corev1.ConfigMap](rt, Maps)
				tc.observe(rt)
				r := run(rt)
				synctest.Wait()
				if name == "prior" {
					for range 2 {
						touch(t, s, "x")
						synctest.Wait()
					}
				}
				_, metrics := get(rt, "/metrics")
				if err := r.end(); err != nil {
					t.Error(err)
				}
				var want int
				if tc.found != "" {
					want = 1
				}
				if n := strings.Count(log.String(), "a shared object was changed by a reader"); n != want {
					t.Errorf("%s: reported %d times, want %d:\n%s", tc.reason, n, want, log.String())
				}
				if tc.found != "" && !strings.Contains(log.String(), "key="+tc.found+" ") {
					t.Errorf("%s: the log does not name %s:\n%s", tc.reason, tc.found, log.String())
				}
				if reader := map[bool]string{true: "reader=culprit", false: "mutation_test.go:"}[name == "prior"]; tc.found != "" &&
					!strings.Contains(log.String(), reader) {
					t.Errorf("%s: the log does not name the observer:\n%s", tc.reason, log.String())
				}
				if n := mutations(metrics); n != strconv.Itoa(want) {
					t.Errorf("%s: the metrics count %q, want %d", tc.reason, n, want)
				}
			})
		})
	}
}

// touch changes an object.
func touch(t *testing.T, s *apiserver.Server, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
		Data:       map[string]string{"touched": "yes"},
	}
	if _, err := s.Put(cm); err != nil {
		t.Fatal(err)
	}
}

// mutations returns the value of the only series of the counter.
func mutations(metrics string) string {
	_, line, _ := strings.Cut(metrics, "\nfairlead_store_mutations_total{")
	line, _, _ = strings.Cut(line, "\n")
	return line[strings.LastIndex(line, " ")+1:]
}

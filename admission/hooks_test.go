package admission_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

type maps = admission.Request[corev1.ConfigMap]

// diary has what hooks were asked.
type diary struct {
	mu  sync.Mutex
	all []string
}

func (d *diary) note(r *maps) {
	d.mu.Lock()
	defer d.mu.Unlock()
	version := func(m *corev1.ConfigMap) string {
		if m == nil {
			return "none"
		}
		return m.Data["v"]
	}
	line := fmt.Sprintf("%s %s %s->%s", r.Operation, r.Name, version(r.Old), version(r.Object))
	if r.DryRun {
		line += " dry"
	}
	d.all = append(d.all, line)
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.all = nil }()
	return slices.Clone(d.all)
}

// warnings are those that a client was shown.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func TestHooksAreAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked diary
	h := admissiontest.Start(t, env.Config(t), func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{
			OnFailure:  admission.FailClosed,
			Operations: []admission.Operation{admission.Create, admission.Update, admission.Delete},
		}, func(_ context.Context, r *maps) error {
			asked.note(r)
			if r.User.Username == "" || r.UID == "" || r.Namespace == "" {
				return fmt.Errorf("user %q, uid %q, namespace %q", r.User.Username, r.UID, r.Namespace)
			}
			if r.Operation == admission.Delete && r.Old.Data["keep"] == "yes" {
				return errors.New("it is kept")
			}
			if r.Old != nil && r.Object != nil && r.Old.Data["v"] > r.Object.Data["v"] {
				return errors.New("versions go up")
			}
			return nil
		})
	})
	var seen warnings
	cfg := env.Config(t)
	cfg.WarningHandler = &seen
	cms := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(h.Namespace)
	steps := []struct {
		reason string
		do     func() error
		says   string
		asked  string
	}{
		{"create", func() error {
			_, err := cms.Create(b.ctx, configMap("a", "v=1"), metav1.CreateOptions{})
			return err
		}, "", "CREATE a none->1"},
		{"dry run", func() error {
			_, err := cms.Create(b.ctx, configMap("b", "v=1"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, "", "CREATE b none->1 dry"},
		{"update", func() error {
			_, err := cms.Update(b.ctx, configMap("a", "v=2", "keep=yes"), metav1.UpdateOptions{})
			return err
		}, "", "UPDATE a 1->2"},
		{"refused update", func() error {
			_, err := cms.Patch(b.ctx, "a", types.MergePatchType, []byte(`{"data":{"v":"1"}}`), metav1.PatchOptions{})
			return err
		}, "versions go up", "UPDATE a 2->1"},
		{
			"refused delete", func() error { return cms.Delete(b.ctx, "a", metav1.DeleteOptions{}) }, "it is kept",
			"DELETE a 2->none",
		},
		{"release", func() error {
			_, err := cms.Patch(b.ctx, "a", types.MergePatchType, []byte(`{"data":{"keep":null}}`), metav1.PatchOptions{})
			return err
		}, "", "UPDATE a 2->2"},
		{"delete", func() error { return cms.Delete(b.ctx, "a", metav1.DeleteOptions{}) }, "", "DELETE a 2->none"},
		{"the program's own namespace", func() error {
			_, err := b.api.CoreV1().ConfigMaps(h.System).Create(b.ctx, configMap("a", "v=1"), metav1.CreateOptions{})
			return err
		}, "", ""},
	}
	for _, s := range steps {
		asked.take()
		err := s.do()
		if (err == nil) != (s.says == "") || !strings.Contains(text(err), s.says) {
			t.Errorf("%s: got %v", s.reason, err)
		}
		want := []string{s.asked}
		if s.asked == "" {
			want = nil
		}
		// A delete that kube-apiserver has begun with an older version of the object is asked about once more.
		got := slices.CompactFunc(asked.take(), func(a, b string) bool { return a == b && strings.HasPrefix(a, "DELETE") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: asked: %s", s.reason, diff)
		}
	}
	if len(seen.all) > 0 {
		t.Errorf("warnings: %v", seen.all)
	}
}

// What a function says is what the client is told.
func TestAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log testlog.Book
	h := admissiontest.Start(t, env.Config(t), func(h *admission.Hooks) {
		rule := admission.Rule{OnFailure: admission.FailClosed, Timeout: time.Second}
		admission.Validate(h, rule, func(ctx context.Context, r *maps) error {
			data := field.NewPath("data")
			switch r.Object.Data["do"] {
			case "forbid":
				return errors.New("not today")
			case "api":
				return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, r.Name, errors.New("taken"))
			case "fields":
				return field.ErrorList{
					field.Required(data.Key("x"), "say it"), field.Invalid(data.Key("y"), "2", "too large"),
				}.ToAggregate()
			case "joined":
				return errors.Join(field.Required(data.Key("x"), "say it"), errors.New("and more"))
			case "warn":
				r.Warn("old: %s", r.Object.Data["do"])
				return nil
			case "warn and forbid":
				r.Warn("look out")
				return errors.New("no")
			case "panic":
				panic("broken function")
			case "exit":
				runtime.Goexit()
			case "undecided":
				return admission.Undecided(errors.New("the oracle is silent"))
			case "late":
				<-ctx.Done()
				return fmt.Errorf("waited: %w", ctx.Err())
			}
			r.Object.Data["lost"] = "yes"
			return nil
		})
	}, fairlead.WithLogger(log.Logger()))
	var seen warnings
	cfg := env.Config(t)
	cfg.WarningHandler = &seen
	cms := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(h.Namespace)
	for _, tc := range []struct {
		do     string
		code   int32
		says   string
		causes int
		warns  string
	}{
		{"nothing", 0, "", 0, ""},
		{"forbid", 403, "denied the request: not today", 0, ""},
		{"api", 409, "taken", 0, ""},
		{"fields", 422, "too large", 2, ""},
		{"joined", 422, "and more", 1, ""},
		{"warn", 0, "", 0, "old: warn"},
		{"warn and forbid", 403, "no", 0, "look out"},
		{"panic", 500, "could not decide", 0, ""},
		{"undecided", 500, "could not decide", 0, ""},
		{"exit", 500, "failed calling webhook", 0, ""},
		{"late", 500, "failed calling webhook", 0, ""},
	} {
		seen.all = nil
		_, err := cms.Create(b.ctx, configMap("x", "do="+tc.do), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		var code int32
		causes := 0
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			code = status.Status().Code
			if d := status.Status().Details; d != nil && code == 422 {
				causes = len(d.Causes)
			}
		}
		if code != tc.code || !strings.Contains(text(err), tc.says) || causes != tc.causes {
			t.Errorf("%s: %d causes, %v", tc.do, causes, err)
		}
		if tc.warns != strings.Join(seen.all, "; ") {
			t.Errorf("%s: warnings %q", tc.do, seen.all)
		}
	}
	for _, want := range []string{
		"panicked: broken function", "the oracle is silent", "ended its goroutine",
		"a hook refused",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not tell of %q:\n%s", want, log.String())
		}
	}
	for _, want := range []string{
		`hook="validate.configmap.v1.core",operation="create",result="failed"} 4`, `result="allowed"} 2`,
		`result="denied"} 5`,
		`fairlead_admission_request_duration_seconds_count{`, `fairlead_admission_certificate_expiry_timestamp_seconds{`,
	} {
		b.eventually("metrics", func() string { // who was late is counted after the API server has gone
			answer := httptest.NewRecorder()
			h.Runtime.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if !strings.Contains(answer.Body.String(), want) {
				return "they lack " + want
			}
			return ""
		})
	}
}

func TestMutate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := admissiontest.Start(t, env.Config(t), func(h *admission.Hooks) {
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed}, func(_ context.Context, r *maps) error {
			if r.Object.Data["v"] == "" {
				return errors.New("no version")
			}
			if r.Object.Labels == nil {
				r.Object.Labels = map[string]string{}
			}
			r.Object.Labels["team/name"] = "a"
			r.Object.Data["v"] += "!"
			delete(r.Object.Data, "drop")
			r.Warn("changed")
			return nil
		})
	})
	cms := b.api.CoreV1().ConfigMaps(h.Namespace)
	got, err := cms.Create(b.ctx, configMap("x", "v=1", "drop=it", "stays=so"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"v": "1!", "stays": "so"}, got.Data); diff != "" ||
		got.Labels["team/name"] != "a" {
		t.Errorf("got %v, %s", got.Labels, diff)
	}
	if _, err = cms.Create(b.ctx, configMap("y"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// While nobody serves, the policy decides.
func TestDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := admissiontest.Start(t, env.Config(t), func(h *admission.Hooks) {
		for name, policy := range map[string]admission.FailurePolicy{
			"closed.example.com": admission.FailClosed, "open.example.com": admission.FailOpen,
		} {
			admission.Validate(h, admission.Rule{
				Name: name, OnFailure: policy,
				Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"hook": string(policy)}},
			}, func(context.Context, *maps) error { return errors.New("refused") })
		}
	})
	create := func(policy admission.FailurePolicy) error {
		m := configMap("x")
		m.Labels = map[string]string{"hook": string(policy)}
		_, err := b.api.CoreV1().ConfigMaps(h.Namespace).Create(b.ctx, m, metav1.CreateOptions{})
		return err
	}
	for _, policy := range []admission.FailurePolicy{admission.FailClosed, admission.FailOpen} {
		if err := create(policy); !strings.Contains(text(err), "denied the request: refused") {
			t.Errorf("%s, up: %v", policy, err)
		}
	}
	h.Stop()
	if err := create(admission.FailClosed); !apierrors.IsInternalError(err) || !strings.Contains(text(err),
		"closed.example.com") {
		t.Errorf("closed, down: %v", err)
	}
	if err := create(admission.FailOpen); err != nil {
		t.Errorf("open, down: %v", err)
	}
}

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// warnings collects the warnings that a client has received.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// TestHooksAreAsked makes writes for which hooks are called. The API server may call more than once for one write. It
// starts with an object of its watch cache, and starts again if that is not the newest one. A hook that refuses the
// older object does not decide. The last call is about the newest object.
func TestHooksAreAsked(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	var asked hookbed.Diary
	h := admissiontest.Start(t, env.Config(t), func(_ *fairlead.Runtime, h *admission.Hooks) {
		admission.Validate(h, admission.Rule{
			OnFailure: admission.FailClosed, Timeout: hookbed.Long,
			Operations: []admission.Operation{admission.Create, admission.Update, admission.Delete},
		}, asked.Validate)
	})
	var seen warnings
	cfg := env.Config(t)
	cfg.WarningHandler = &seen
	cms := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(h.Namespace)
	for _, s := range []struct {
		reason string
		do     func() error
		says   string
		asked  string   // the last call
		older  []string // calls before it, about older objects
	}{
		{"create", func() error {
			_, err := cms.Create(b.Ctx, hookbed.ConfigMap("a", "v=1"), metav1.CreateOptions{})
			return err
		}, "", "CREATE a none->1", nil},
		{"dry run", func() error {
			_, err := cms.Create(b.Ctx, hookbed.ConfigMap("b", "v=1"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, "", "CREATE b none->1 dry", nil},
		{"update", func() error {
			_, err := cms.Update(b.Ctx, hookbed.ConfigMap("a", "v=2", "keep=yes"), metav1.UpdateOptions{})
			return err
		}, "", "UPDATE a 1->2", nil},
		{"refused update", func() error {
			_, err := cms.Patch(b.Ctx, "a", types.MergePatchType, []byte(`{"data":{"v":"1"}}`), metav1.PatchOptions{})
			return err
		}, "versions go up", "UPDATE a 2->1", []string{"UPDATE a 1->1"}},
		{"refused delete", func() error {
			return cms.Delete(b.Ctx, "a", metav1.DeleteOptions{})
		}, "it is kept", "DELETE a 2->none", []string{"DELETE a 1->none"}},
		{"release", func() error {
			_, err := cms.Patch(b.Ctx, "a", types.MergePatchType, []byte(`{"data":{"keep":null}}`), metav1.PatchOptions{})
			return err
		}, "", "UPDATE a 2->2", []string{"UPDATE a 1->1"}},
		{"delete", func() error {
			return cms.Delete(b.Ctx, "a", metav1.DeleteOptions{})
		}, "", "DELETE a 2->none", []string{"DELETE a 1->none"}},
		{"the program's own namespace", func() error {
			_, err := b.API.CoreV1().ConfigMaps(h.System).Create(b.Ctx, hookbed.ConfigMap("a", "v=1"), metav1.CreateOptions{})
			return err
		}, "", "", nil},
	} {
		asked.Take()
		err := s.do()
		if (err == nil) != (s.says == "") || !strings.Contains(hookbed.Text(err), s.says) {
			t.Errorf("%s: got %v", s.reason, err)
		}
		got := asked.Take()
		if s.asked == "" {
			if len(got) > 0 {
				t.Errorf("%s: got the calls %q, want none", s.reason, got)
			}
			continue
		}
		if len(got) == 0 || got[len(got)-1] != s.asked {
			t.Errorf("%s: got the calls %q, want %q as the last one", s.reason, got, s.asked)
		}
		for _, question := range got {
			if question != s.asked && !slices.Contains(s.older, question) {
				t.Errorf("%s: got the call %q, which is neither %q nor one of %q", s.reason, question, s.asked, s.older)
			}
		}
	}
	if len(seen.all) > 0 {
		t.Errorf("warnings: %v", seen.all)
	}
}

// TestAnswers compares the answers of a hook with the errors and warnings of a client.
func TestAnswers(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	h := admissiontest.Start(t, env.Config(t), func(_ *fairlead.Runtime, h *admission.Hooks) {
		for late, timeout := range map[metav1.LabelSelectorOperator]time.Duration{
			metav1.LabelSelectorOpDoesNotExist: hookbed.Long, metav1.LabelSelectorOpExists: time.Second,
		} {
			admission.Validate(h, admission.Rule{
				Name: strings.ToLower(string(late)) + ".example.com", OnFailure: admission.FailClosed, Timeout: timeout,
				Objects: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "late", Operator: late}},
				},
			}, hookbed.Answer)
		}
	})
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
		object := hookbed.ConfigMap("x", "do="+tc.do)
		if tc.do == "late" {
			object.Labels = map[string]string{"late": ""}
		}
		_, err := cms.Create(b.Ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		var code int32
		causes := 0
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			code = status.Status().Code
			if d := status.Status().Details; d != nil && code == 422 {
				causes = len(d.Causes)
			}
		}
		if code != tc.code || !strings.Contains(hookbed.Text(err), tc.says) || causes != tc.causes {
			t.Errorf("%s: %d causes, %v", tc.do, causes, err)
		}
		if tc.warns != strings.Join(seen.all, "; ") {
			t.Errorf("%s: warnings %q", tc.do, seen.all)
		}
	}
}

func TestMutate(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	h := admissiontest.Start(t, env.Config(t), func(_ *fairlead.Runtime, h *admission.Hooks) {
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed, Timeout: hookbed.Long}, hookbed.Change)
	})
	cms := b.API.CoreV1().ConfigMaps(h.Namespace)
	got, err := cms.Create(b.Ctx, hookbed.ConfigMap("x", "v=1", "drop=it", "stays=so"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"v": "1!", "stays": "so"}, got.Data); diff != "" ||
		got.Labels["team/name"] != "a" {
		t.Errorf("got %v, %s", got.Labels, diff)
	}
	if _, err = cms.Create(b.Ctx, hookbed.ConfigMap("y"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// Without a server of hooks, the failure policy decides.
func TestDown(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	h := admissiontest.Start(t, env.Config(t), func(_ *fairlead.Runtime, h *admission.Hooks) {
		for name, policy := range map[string]admission.FailurePolicy{
			"closed.example.com": admission.FailClosed, "open.example.com": admission.FailOpen,
		} {
			admission.Validate(h, admission.Rule{
				Name: name, OnFailure: policy, Timeout: hookbed.Long,
				Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"hook": string(policy)}},
			}, func(context.Context, *hookbed.Maps) error { return errors.New("refused") })
		}
	})
	create := func(policy admission.FailurePolicy) error {
		m := hookbed.ConfigMap("x")
		m.Labels = map[string]string{"hook": string(policy)}
		_, err := b.API.CoreV1().ConfigMaps(h.Namespace).Create(b.Ctx, m, metav1.CreateOptions{})
		return err
	}
	for _, policy := range []admission.FailurePolicy{admission.FailClosed, admission.FailOpen} {
		if err := create(policy); !strings.Contains(hookbed.Text(err), "denied the request: refused") {
			t.Errorf("%s, up: %v", policy, err)
		}
	}
	h.Stop()
	if err := create(admission.FailClosed); !apierrors.IsInternalError(err) || !strings.Contains(hookbed.Text(err),
		"closed.example.com") {
		t.Errorf("closed, down: %v", err)
	}
	if err := create(admission.FailOpen); err != nil {
		t.Errorf("open, down: %v", err)
	}
}

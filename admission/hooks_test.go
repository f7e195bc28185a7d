package admission_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

const (
	validatePath = "/validate/validate.configmap.v1.core"
	mutatePath   = "/mutate/mutate.configmap.v1.core"
)

// TestQuestions calls a hook for each operation. One review is one call.
func TestQuestions(t *testing.T) {
	t.Parallel()
	var asked hookbed.Diary
	s := serve(t, model(t), func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{
			OnFailure:  admission.FailClosed,
			Operations: []admission.Operation{admission.Create, admission.Update, admission.Delete},
		}, asked.Validate)
	})
	first, second := hookbed.ConfigMap("a", "v=1"), hookbed.ConfigMap("a", "v=2", "keep=yes")
	for _, tc := range []struct {
		reason string
		q      question
		says   string
		asked  string
	}{
		{"create", question{operation: admissionv1.Create, object: first}, "", "CREATE a none->1"},
		{"dry run", question{operation: admissionv1.Create, object: first, dryRun: true}, "", "CREATE a none->1 dry"},
		{"update", question{operation: admissionv1.Update, object: second, old: first}, "", "UPDATE a 1->2"},
		{
			"refused update",
			question{operation: admissionv1.Update, object: first, old: second},
			"versions go up",
			"UPDATE a 2->1",
		},
		{"refused delete", question{operation: admissionv1.Delete, old: second}, "it is kept", "DELETE a 2->none"},
		{"delete", question{operation: admissionv1.Delete, old: first}, "", "DELETE a 1->none"},
	} {
		got, err := s.ask(validatePath, tc.q)
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if got.Allowed != (tc.says == "") || !got.Allowed && (got.Result.Message != tc.says || got.Result.Code != 403) {
			t.Errorf("%s: got %+v", tc.reason, got)
		}
		if diff := cmp.Diff([]string{tc.asked}, asked.Take()); diff != "" {
			t.Errorf("%s: asked: %s", tc.reason, diff)
		}
	}
}

// TestAnswers compares the result of a hook with the decision, the log and the metrics.
func TestAnswers(t *testing.T) {
	t.Parallel()
	var log testlog.Book
	s := serve(t, model(t), func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, hookbed.Answer)
	}, fairlead.WithLogger(log.Logger()))
	for _, tc := range []struct {
		do     string
		code   int32 // of the decision; 0: allowed, -1: no decision
		says   string
		causes int
		warns  []string
	}{
		{"nothing", 0, "", 0, nil},
		{"forbid", 403, "not today", 0, nil},
		{"api", 409, "taken", 0, nil},
		{"fields", 422, "too large", 2, nil},
		{"joined", 422, "and more", 1, nil},
		{"warn", 0, "", 0, []string{"old: warn"}},
		{"warn and forbid", 403, "no", 0, []string{"look out"}},
		{"panic", -1, "could not decide", 0, nil},
		{"undecided", -1, "could not decide", 0, nil},
		{"exit", -1, "", 0, nil},
		{"late", -1, "", 0, nil},
	} {
		q := question{operation: admissionv1.Create, object: hookbed.ConfigMap("x", "do="+tc.do)}
		if tc.do == "late" {
			q.timeout = time.Second
		}
		got, err := s.ask(validatePath, q)
		if tc.code < 0 {
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "silent") ||
				strings.Contains(err.Error(), "broken function") {
				t.Errorf("%s: decided %+v, %v", tc.do, got, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.do, err)
			continue
		}
		if got.Allowed != (tc.code == 0) || !slices.Equal(got.Warnings, tc.warns) {
			t.Errorf("%s: got %+v", tc.do, got)
		}
		if tc.code == 0 {
			continue
		}
		causes := 0
		if d := got.Result.Details; d != nil {
			causes = len(d.Causes)
		}
		if got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.says) || causes != tc.causes {
			t.Errorf("%s: %d causes, %+v", tc.do, causes, got.Result)
		}
	}
	for _, want := range []string{
		"panicked: broken function", "the oracle is silent", "ended its goroutine", "a hook refused",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	for _, want := range []string{
		`hook="validate.configmap.v1.core",operation="create",result="failed"} 4`, `result="allowed"} 2`,
		`result="denied"} 5`,
		`fairlead_admission_request_duration_seconds_count{`, `fairlead_admission_certificate_expiry_timestamp_seconds{`,
	} {
		s.Eventually("metrics", func() string { // a late answer is counted after its connection has ended
			answer := httptest.NewRecorder()
			s.runtime.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if !strings.Contains(answer.Body.String(), want) {
				return "they lack " + want
			}
			return ""
		})
	}
}

// TestMutate applies the patch of a decision to the object of the request.
func TestMutate(t *testing.T) {
	t.Parallel()
	s := serve(t, model(t), func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, hookbed.Allow)
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed}, hookbed.Change)
	})
	object := hookbed.ConfigMap("x", "v=1", "drop=it", "stays=so")
	got, err := s.ask(mutatePath, question{operation: admissionv1.Create, object: object})
	if err != nil || !got.Allowed || got.PatchType == nil || *got.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("got %+v, %v", got, err)
	}
	if !slices.Equal(got.Warnings, []string{"changed"}) {
		t.Errorf("warnings: %q", got.Warnings)
	}
	patch, err := jsonpatch.DecodePatch(got.Patch)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("cannot apply %s: %v", got.Patch, err)
	}
	var changed corev1.ConfigMap
	if err := json.Unmarshal(after, &changed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"v": "1!", "stays": "so"}, changed.Data); diff != "" ||
		changed.Labels["team/name"] != "a" {
		t.Errorf("got %v, %s", changed.Labels, diff)
	}
	got, err = s.ask(mutatePath, question{operation: admissionv1.Create, object: hookbed.ConfigMap("y")})
	if err != nil || got.Allowed || got.Result.Code != 403 || got.Patch != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

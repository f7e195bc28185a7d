package call

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/why"
)

// refused returns the error of a request that an API server has refused.
func refused(code int32, reason metav1.StatusReason, message string, d *metav1.StatusDetails) error {
	s := &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message, Details: d}}
	return fmt.Errorf("cannot go on: %w", &Error{
		Verb: VerbCreate, Kind: "Pod", Namespace: "prod", Name: "web", Code: int(code), Reason: reason, Message: message,
		errs: []error{s},
	})
}

// TestWhy reads messages as real API servers write them.
func TestWhy(t *testing.T) {
	t.Parallel()
	pods := &metav1.StatusDetails{Kind: "pods"}
	for name, tc := range map[string]struct {
		err      error
		want     why.Type
		evidence map[string]string
		advice   string
	}{
		"Right": {
			refused(403, metav1.StatusReasonForbidden,
				`gateways.example.com "web" is forbidden: User "system:serviceaccount:ops:web" `+
					`cannot patch resource "gateways/status" in API group "example.com" in the namespace "prod"`, nil),
			why.Forbidden,
			map[string]string{
				"verb": "patch", "resource": "gateways.example.com", "subresource": "status", "namespace": "prod",
				"user": "system:serviceaccount:ops:web", "status": "403",
				"rule": `{apiGroups: ["example.com"], resources: ["gateways/status"], verbs: ["patch"]}`,
			},
			"a Role in namespace prod",
		},
		"RightOfTheCluster": {
			refused(403, metav1.StatusReasonForbidden,
				`nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" `+
					`at the cluster scope`, nil),
			why.Forbidden,
			map[string]string{
				"verb": "list", "resource": "nodes",
				"rule": `{apiGroups: [""], resources: ["nodes"], verbs: ["list"]}`,
			},
			"a ClusterRole",
		},
		"Webhook": {
			refused(403, metav1.StatusReasonForbidden, `admission webhook "pods.example.com" denied the request: no root`, pods),
			why.Forbidden,
			map[string]string{"refusedBy": "admission webhook pods.example.com", "resource": "pods"},
			"the owner of the webhook",
		},
		"WebhookOf400": {
			refused(400, "", `admission webhook "pods.example.com" denied the request without explanation`, nil),
			why.Forbidden,
			map[string]string{"refusedBy": "admission webhook pods.example.com", "status": "400"},
			"the owner of the webhook",
		},
		"Policy": {
			refused(422, metav1.StatusReasonInvalid,
				`pods "web" is forbidden: ValidatingAdmissionPolicy 'small' with binding 'all' `+
					`denied request: too large`, pods),
			why.Forbidden,
			map[string]string{"refusedBy": "ValidatingAdmissionPolicy small"},
			"policy",
		},
		"Quota": {
			refused(403, metav1.StatusReasonForbidden,
				`pods "web" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, `+
					`limited: pods=2`, pods),
			why.Forbidden,
			map[string]string{"refusedBy": "ResourceQuota small"},
			"raise the quota",
		},
		"PodSecurity": {
			refused(403, metav1.StatusReasonForbidden,
				`pods "web" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot`, pods),
			why.Forbidden,
			map[string]string{"refusedBy": "PodSecurity restricted:latest"},
			"security context",
		},
		"Terminating": {
			refused(403, metav1.StatusReasonForbidden,
				`pods "web" is forbidden: unable to create new content in namespace prod because `+
					`it is being terminated`, pods),
			why.Forbidden,
			map[string]string{"refusedBy": "namespace prod, which is being terminated"},
			"another namespace",
		},
		"Conflict": {
			refused(409, metav1.StatusReasonConflict,
				`Operation cannot be fulfilled on pods "web": the object has been modified`, pods),
			why.Conflict,
			map[string]string{"status": "409"},
			"managed-fields",
		},
		"Exists": {
			refused(409, metav1.StatusReasonAlreadyExists, `pods "web" already exists`, pods), why.Conflict, nil, "Adopt it",
		},
		"TooMany": {
			refused(429, metav1.StatusReasonTooManyRequests, "too many", &metav1.StatusDetails{RetryAfterSeconds: 7}),
			why.RetryAfter,
			map[string]string{"retryAfter": "7s"},
			"",
		},
		"Invalid": {
			refused(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec`, pods), why.BackOff, nil,
			"invalid",
		},
		"Unavailable": {refused(503, metav1.StatusReasonServiceUnavailable, "away", nil), why.BackOff, nil, ""},
		"WebhookAway": {
			refused(500, metav1.StatusReasonInternalError,
				`Internal error occurred: failed calling webhook "pods.example.com": `+
					`failed to call webhook: connection refused`, nil),
			why.BackOff,
			map[string]string{"webhook": "pods.example.com"},
			"failurePolicy",
		},
		"NoAnswer": {
			&Error{Verb: VerbGet, Kind: "Pod", errs: []error{&timeoutError{time.Second}}}, why.BackOff, nil, "is reachable",
		},
		"OfOthers": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no")), why.Forbidden,
			map[string]string{"resource": "pods"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ok := Why(tc.err)
			if !ok || c.Type != tc.want || c.Message == "" || !strings.Contains(c.Advice, tc.advice) {
				t.Errorf("got %v, %+v", ok, c)
			}
			for name, want := range tc.evidence {
				if c.Evidence[name] != want {
					t.Errorf("%s is %q, want %q", name, c.Evidence[name], want)
				}
			}
			if name != "OfOthers" && name != "NoAnswer" {
				want := &why.Object{Kind: "Pod", Namespace: "prod", Name: "web"}
				if diff := cmp.Diff(want, c.About); diff != "" {
					t.Errorf("about: -want +got:\n%s", diff)
				}
			}
		})
	}
	for _, err := range []error{nil, errors.New("of something else"), http.ErrServerClosed} {
		if c, ok := Why(err); ok {
			t.Errorf("%v: %+v", err, c)
		}
	}
}

// TestWaiting: of several waiting calls the one that failed last is shown, and none after all have ended.
func TestWaiting(t *testing.T) {
	t.Parallel()
	var w binding.Waiting
	if _, ok := w.Last(); ok {
		t.Error("a call waits")
	}
	one, two := &exchange{p: Policy{Waiting: &w}}, &exchange{p: Policy{Waiting: &w}}
	one.waits(outcome{after: time.Minute})
	two.waits(outcome{after: time.Hour})
	one.over()
	got, ok := w.Last()
	if !ok || time.Until(got.Until) < 50*time.Minute {
		t.Errorf("got %+v, %v", got, ok)
	}
	two.over()
	if got, ok := w.Last(); ok {
		t.Errorf("an ended call is shown: %+v", got)
	}
	var none *binding.Waiting
	if _, ok := none.Last(); ok {
		t.Error("without a call something is shown")
	}
}

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestOperationState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason             string
		uid                types.UID
		specID, statusID   string
		phase              Phase
		id                 string
		pickedUp, terminal bool
	}{
		{"nothing yet", "u", "", "", "", "u", false, false},
		{"on no server: two empty ids are not the same request", "", "", "", PhaseSuccess, "", false, false},
		{"uid stands for a missing id", "u", "", "u", PhaseSuccess, "u", true, true},
		{"in progress", "u", "one", "one", PhaseInProgress, "one", true, false},
		{"picked up, no phase", "u", "one", "one", "", "one", true, false},
		{"succeeded", "u", "one", "one", PhaseSuccess, "one", true, true},
		{"failed", "u", "one", "one", PhaseFailed, "one", true, true},
		{"the outcome of the previous one", "u", "two", "one", PhaseFailed, "two", false, false},
		{"an outcome by uid is not that of a named request", "u", "two", "u", PhaseSuccess, "two", false, false},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			op := &Operation{}
			op.UID, op.Spec.OperationID, op.Status.OperationID, op.Status.Phase = tt.uid, tt.specID, tt.statusID, tt.phase
			if got := op.EffectiveID(); got != tt.id {
				t.Errorf("id %q, want %q", got, tt.id)
			}
			if got := op.PickedUp(); got != tt.pickedUp {
				t.Errorf("picked up %v, want %v", got, tt.pickedUp)
			}
			if got := op.Terminal(); got != tt.terminal {
				t.Errorf("terminal %v, want %v", got, tt.terminal)
			}
		})
	}
}

func TestOperationDeadline(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		reason    string
		scheduled string
		timeout   time.Duration
		want      time.Time
	}{
		{"creation and default, to the end of the second", "", 0, created.Add(2*time.Hour + time.Second)},
		{"creation and timeout", "", time.Minute, created.Add(time.Minute + time.Second)},
		{"scheduled later", "2026-02-02T00:00:00Z", time.Minute, time.Date(2026, 2, 2, 0, 1, 1, 0, time.UTC)},
		{"fractions count", "2026-02-02T00:00:00.5Z", time.Minute, time.Date(2026, 2, 2, 0, 1, 0, 5e8, time.UTC)},
		{"other zones", "2026-02-02T01:00:00.25+01:00", time.Minute, time.Date(2026, 2, 2, 0, 1, 0, 25e7, time.UTC)},
		{"no time", "yesterday", time.Minute, created.Add(time.Minute + time.Second)},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			op := &Operation{}
			op.CreationTimestamp = metav1.NewTime(created)
			op.Spec.Timeout = duration(tt.timeout)
			if tt.scheduled != "" {
				op.Annotations = map[string]string{AnnotationScheduledAt: tt.scheduled}
			}
			if got := op.Deadline(); !got.Equal(tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestNoTimeIsLost: an operation has all of its time. That holds for each moment of the second in which it was created,
// and for each creator.
func TestNoTimeIsLost(t *testing.T) {
	t.Parallel()
	second := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	micro := func(at time.Time) *metav1.MicroTime { m := metav1.NewMicroTime(at); return &m }
	for _, tt := range []struct {
		reason      string
		initialized time.Time // when it was picked up
		annotation  string
		before      time.Time // the end of the previous operation
		scheduled   time.Time
		deadline    time.Time
	}{
		{"made and picked up within the second", second.Add(7e8), "", time.Time{}, second, second.Add(7e8)},
		{"picked up later", second.Add(5 * time.Second), "", time.Time{}, second, second.Add(time.Second)},
		{"picked up by a clock that is behind", second.Add(-time.Second), "", time.Time{}, second, second.Add(time.Second)},
		{
			"an annotation in whole seconds", second.Add(time.Hour + 3e8), "2026-01-02T04:04:05Z",
			time.Time{},
			second.Add(time.Hour), second.Add(time.Hour + 3e8),
		},
		{
			"the spec was replaced without an annotation: it is newer than the object", second.Add(time.Hour + 3e8), "",
			second.Add(time.Minute), second.Add(time.Hour + 3e8), second.Add(time.Hour + 3e8),
		},
		{
			"and newer than the previous request, whose annotation still exists",
			second.Add(time.Hour), "2026-01-02T03:04:06.5Z",
			second.Add(time.Minute), second.Add(time.Hour), second.Add(time.Hour + time.Second),
		},
		{
			"the next request of the Scheduler", second.Add(time.Hour), "2026-01-02T04:04:04.5Z", second.Add(time.Minute),
			second.Add(time.Hour - 5e8), second.Add(time.Hour - 5e8),
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			op := &Operation{}
			op.CreationTimestamp, op.UID = metav1.NewTime(second), "u"
			op.Spec.Timeout = duration(2 * time.Second)
			op.Status.OperationID, op.Status.InitializedAt = "u", micro(tt.initialized)
			if tt.annotation != "" {
				op.Annotations = map[string]string{AnnotationScheduledAt: tt.annotation}
			}
			if !tt.before.IsZero() {
				op.Status.History = []FinishedOperation{{FinishedAt: *micro(tt.before)}}
			}
			if got := op.ScheduledAt(); !got.Equal(tt.scheduled) {
				t.Errorf("scheduled at %v, want %v", got, tt.scheduled)
			}
			if got := op.Deadline().Add(-2 * time.Second); !got.Equal(tt.deadline) {
				t.Errorf("the time counts from %v, want %v", got, tt.deadline)
			}
		})
	}
}

func TestRequestObjectCheckSize(t *testing.T) {
	t.Parallel()
	text := func(n int) *RequestObject { // {"resource":"xxx"} has 15 bytes around the text
		return &RequestObject{Resource: &apiextensionsv1.JSON{Raw: []byte(`"` + strings.Repeat("x", n) + `"`)}}
	}
	for _, tt := range []struct {
		reason string
		object *RequestObject
		ok     bool
	}{
		{"none", nil, true},
		{"empty", &RequestObject{}, true},
		{"just fits", text(MaxRequestObjectBytes - 15), true},
		{"one byte too many", text(MaxRequestObjectBytes - 14), false},
		{"no JSON", &RequestObject{Resource: &apiextensionsv1.JSON{Raw: []byte("{")}}, false},
		{"headers count", &RequestObject{Headers: map[string]string{"X": strings.Repeat("x", MaxRequestObjectBytes)}}, false},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			if err := tt.object.CheckSize(); (err == nil) != tt.ok {
				t.Errorf("got %v, want accepted %v", err, tt.ok)
			}
		})
	}
}

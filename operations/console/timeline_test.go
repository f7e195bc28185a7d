package console

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// TestTimeline: the remembered attempts are on the time axis, each with its status. The page says whether there were
// more.
func TestTimeline(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	micro := func(s int) *metav1.MicroTime { return new(metav1.NewMicroTime(at(s))) }
	op := func(retries int32, polled *metav1.MicroTime) *v1alpha1.Operation {
		o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: metav1.NewTime(begun)}}
		o.Status.OperationID, o.Status.Phase, o.Status.InitializedAt = "u", v1alpha1.PhaseInProgress, micro(0)
		o.Status.Webhooks = []v1alpha1.WebhookCallStatus{{
			WebhookID: "hook", State: v1alpha1.PhaseInProgress, StartedAt: micro(10), RetriesCount: retries,
			LastPollTimestamp: polled,
		}}
		return o
	}
	try := func(from, to, status int, v webhook.Verdict) executor.Attempt {
		a := executor.Attempt{Webhook: "hook", Began: at(from), Status: status, Verdict: v}
		if to > 0 {
			a.Ended = at(to)
		}
		return a
	}
	two := []executor.Attempt{
		try(10, 20, http.StatusServiceUnavailable, webhook.Retry), try(50, 60, 0, webhook.Retry), try(90, 0, 0, 0),
	}
	for name, tc := range map[string]struct {
		op    *v1alpha1.Operation
		known executor.Attempts
		shown int
		more  bool
	}{
		"Known":          {op(2, nil), executor.Attempts{Last: two}, 3, false},
		"FirstTry":       {op(0, nil), executor.Attempts{}, 0, false},
		"AnotherProcess": {op(4, nil), executor.Attempts{}, 0, true},
		"SomeOfAnother":  {op(4, nil), executor.Attempts{Last: two}, 3, true},
		"Dropped":        {op(2, nil), executor.Attempts{Last: two, Dropped: 1}, 3, true},
		"PolledBefore":   {op(0, micro(50)), executor.Attempts{}, 0, true},
	} {
		drawn := timelineOf(tc.op, tc.known, at(100))
		if len(drawn.Tries) != tc.shown || drawn.More != tc.more {
			t.Errorf("%s: %d tries, others more %t", name, len(drawn.Tries), drawn.More)
		}
	}
	drawn := timelineOf(op(2, nil), executor.Attempts{Last: two}, at(100))
	var bars []bar
	for _, l := range drawn.Lanes {
		if l.Call != nil {
			bars = l.Bars
		}
	}
	if len(bars) != 4 || !strings.HasSuffix(bars[0].Class, " whole") {
		t.Fatalf("the call is drawn as %+v", bars)
	}
	for i, want := range []bar{
		{X: 100, Wide: 100, Class: "bad try", Title: "attempt, HTTP 503: to be retried"},
		{X: 500, Wide: 100, Class: "bad try", Title: "attempt: to be retried"},
		{X: 900, Wide: 100, Class: "going try", Title: "attempt: in progress"},
	} {
		got := bars[i+1]
		if got.X, got.Wide = float64(int(got.X+.5)), float64(int(got.Wide+.5)); got != want {
			t.Errorf("try %d is drawn as %+v, want %+v", i, got, want)
		}
	}
}

// TestTimelineOnAPhone: the picture for phones has the names above their bars, and no part is outside of it.
func TestTimelineOnAPhone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long-name-", 10)
	line := &timeline{
		High: 2 * laneHigh, Ticks: []tick{{0, "+0s"}, {200, "+1s"}, {400, "+2s"}, {1000, "+5s"}},
		Lanes: []lane{
			{Title: "before the first call", Bars: []bar{{X: 0, Wide: 10, Class: "wait"}}},
			{Title: long, Bars: []bar{{X: 10, Wide: 990, Class: "bad"}}, Marks: []mark{{1000, "next", "next attempt or poll"}}},
		},
	}
	var text strings.Builder
	if err := renderOf(t).Part(&text, "operation", "content", pages.View{Data: operationData{
		Op: &v1alpha1.Operation{}, Timeline: line, Why: why.Answer{},
	}}); err != nil {
		t.Fatal(err)
	}
	_, picture, found := strings.Cut(text.String(), `<svg class="phone" viewBox="0 0 320 `)
	picture, _, _ = strings.Cut(strings.ReplaceAll(picture, "&#43;", "+"), "</svg>")
	if !found || !strings.Contains(picture, ">before the first call</text>") || strings.Contains(picture, ">"+long) ||
		!strings.Contains(picture, ">+0s</text>") || strings.Contains(picture, ">+1s</text>") {
		t.Errorf("the picture: %s", picture)
	}
	for _, rect := range regexp.MustCompile(` x="([0-9.]+)" y="[0-9]+" width="([0-9.]+)"`).FindAllStringSubmatch(picture, -1) {
		x, _ := strconv.ParseFloat(rect[1], 64)
		wide, _ := strconv.ParseFloat(rect[2], 64)
		if x+wide > 320 {
			t.Errorf("a bar ends at %v", x+wide)
		}
	}
}

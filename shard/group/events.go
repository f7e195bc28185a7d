package group

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedevents "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// eventWriter writes Events about the Lease of the group. It drops Events above its rate limit.
type eventWriter struct {
	client  typedevents.EventsV1Interface
	opt     *Options
	clock   leasing.Clock
	log     *slog.Logger
	state   *state // for the uid of the group Lease
	changes chan Change
}

// Bounds of Events: a burst, and then one for each interval.
const (
	eventsAtOnce  = 20
	eventInterval = 15 * time.Second
)

// reasons maps kinds of changes to reasons of Events.
var reasons = map[Kind]string{
	Joined: "MemberJoined", Gained: "SlotsGained", Released: "SlotsReleased", Lost: "SlotsLost", Died: "MemberDied",
	Left: "MemberLeft", NotReady: "SlotsNotReady",
}

func newEventWriter(
	client typedevents.EventsV1Interface, opt *Options, clock leasing.Clock, log *slog.Logger, s *state,
) *eventWriter {
	return &eventWriter{
		client: client, opt: opt, clock: clock, log: log, state: s, changes: make(chan Change, eventsAtOnce),
	}
}

// enqueue queues a change. It drops it if the queue is full. A nil eventWriter does nothing.
func (e *eventWriter) enqueue(c Change) {
	if e == nil || reasons[c.Kind] == "" {
		return
	}
	select {
	case e.changes <- c:
	default:
	}
}

// run writes Events until over is closed, and then the queued ones.
func (e *eventWriter) run(ctx context.Context, over <-chan struct{}) {
	left, last, refused := float64(eventsAtOnce), e.clock.Now(), false
	for {
		var c Change
		select {
		case c = <-e.changes:
		case <-over:
			select {
			case c = <-e.changes:
			default:
				return
			}
		}
		now := e.clock.Now()
		left = min(eventsAtOnce, left+float64(now.Sub(last))/float64(eventInterval))
		if last = now; left < 1 {
			continue
		}
		left--
		err := e.write(ctx, c)
		if err != nil && !refused {
			e.log.WarnContext(ctx, "cannot write Events about the group", "error", err)
		}
		refused = err != nil
	}
}

func (e *eventWriter) write(ctx context.Context, c Change) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	opt := e.opt
	kind, note := corev1.EventTypeNormal, fmt.Sprintf("%s: %s", opt.Member, c.Kind)
	if !c.Slots.IsEmpty() {
		note += fmt.Sprintf(" slots %s", c.Slots)
	}
	if c.Kind == Lost || c.Kind == Died || c.Kind == NotReady {
		kind = corev1.EventTypeWarning
	}
	if c.Member != "" {
		note += " " + c.Member
	}
	if c.Err != nil {
		note += fmt.Sprintf(": %v", c.Err)
	}
	_, err := e.client.Events(opt.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: opt.Namespace, GenerateName: opt.Name + "-"},
		EventTime:  metav1.NewMicroTime(e.clock.Now()), Type: kind, Reason: reasons[c.Kind], Action: "Share",
		ReportingController: "fairlead.io/shard-group", ReportingInstance: cut(opt.Member, 128), Note: cut(note, 1024),
		Regarding: corev1.ObjectReference{
			APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: opt.Namespace, Name: opt.Name,
			UID: e.uid(),
		},
	}, metav1.CreateOptions{})
	return err
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// uid returns the uid of the Lease of the group, or "" if it is not known.
func (e *eventWriter) uid() types.UID {
	if r := e.state.facts().record; r != nil {
		return types.UID(r.founded)
	}
	return ""
}

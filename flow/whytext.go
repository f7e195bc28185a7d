package flow

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/why"
)

// longRun is how long a step runs, or a fiber waits for a worker, before that counts as a cause.
const longRun = 2 * time.Second

// placed adds the step and the times to a cause.
func (s *fiberSnapshot) placed(c why.Cause) why.Cause {
	evidence := map[string]string{"flow": s.Flow, "step": s.Path}
	for name, value := range c.Evidence {
		evidence[name] = value
	}
	if c.Evidence = evidence; c.Since.IsZero() {
		c.Since = s.Entered
	}
	if c.Until.IsZero() && s.Status == Parked {
		c.Until = s.Until
	}
	if err := s.notes.led; err != nil {
		evidence["after"] = err.Error()
	}
	if !s.late.IsZero() {
		evidence["deadline"] = s.late.UTC().Format(time.RFC3339)
	}
	return c
}

// failed returns the causes of an error after which the step is retried.
func (s *fiberSnapshot) failed(classify func(error) []why.Cause) (causes []why.Cause) {
	err := s.notes.err
	if classify != nil {
		causes = classify(err)
	}
	if len(causes) == 0 {
		causes = why.Of(err)
	}
	if len(causes) == 0 {
		c := why.Cause{Type: why.BackOff, Message: fmt.Sprintf("step %s failed and is retried: %v", s.Path, err)}
		if errors.Is(err, ErrTimeout) {
			c.Type = why.DeadlinePassed
		}
		causes = []why.Cause{c}
	}
	out := make([]why.Cause, 0, len(causes))
	for _, c := range causes {
		if c.Since.IsZero() {
			c.Since = s.failedAt
		}
		c = s.placed(c)
		c.Evidence["error"] = err.Error()
		c.Evidence["attempts"] = strconv.Itoa(s.Attempt + 1)
		out = append(out, c)
	}
	return out
}

// waiting returns the default causes, by the state of the fiber.
func (s *fiberSnapshot) waiting() []why.Cause {
	c := why.Cause{Type: why.Parked, Evidence: map[string]string{}}
	switch {
	case s.Status == Running && s.For < longRun:
		return nil
	case s.Status == Running:
		c.Since = s.Since
		c.Message = fmt.Sprintf("step %s has been running since %s", s.Path, clock(s.Since))
		c.Evidence["running"] = s.For.Round(time.Millisecond).String()
		s.quote(&c, "The stack shows where its code is. Code that waits for long should return Await.")
	case s.Status == Ready && s.For < longRun:
		return nil
	case s.Status == Ready:
		c.Type, c.Since = why.QueuedBehind, s.Since
		c.Message = fmt.Sprintf("step %s waits for a worker, as do %d fibers in all", s.Path, s.ready)
		c.Evidence["waiting"], c.Evidence["running"] = strconv.Itoa(s.ready), strconv.Itoa(s.running)
		c.Evidence["group"] = s.Group
		s.quote(&c, "The stack is that of the worker with the longest-running step. "+
			"Code that waits for long should return Await.")
	default:
		return s.parked(c)
	}
	return []why.Cause{s.placed(c)}
}

// quote adds the stacks of s.workers and the advice, if there is a stack.
func (s *fiberSnapshot) quote(c *why.Cause, advice string) {
	if stack := goroutine.Stacks(s.workers...); stack != "" {
		c.Evidence["stack"], c.Advice = stack, advice
	}
}

func (s *fiberSnapshot) parked(c why.Cause) []why.Cause {
	switch s.Why {
	case whyGate.String():
		return []why.Cause{s.gated(c)}
	case whyAwait.String():
		return s.awaiting(c)
	case whyDelay.String():
		c.Message = fmt.Sprintf("step %s sleeps until %s; nothing has failed", s.Path, clock(s.Until))
		c.Progress = true
	case whyRetry.String():
		c.Type = why.BackOff
		c.Message = fmt.Sprintf("step %s asked to run again at %s", s.Path, clock(s.Until))
		c.Evidence["attempts"] = strconv.Itoa(s.Attempt + 1)
	case whySuspend.String():
		c.Message = fmt.Sprintf("step %s waits for its token to be resumed", s.Path)
		c.Advice = "The receiver of the token has not resumed it. Check that receiver."
	case whyFork.String():
		c.Message = fmt.Sprintf("step %s waits for %d children", s.Path, s.Children)
		c.Evidence["children"] = strconv.Itoa(s.Children)
	case whyLoad.String():
		c.Type = why.BackOff
		c.Message = fmt.Sprintf("the position of the fiber cannot be loaded or saved at step %s; retries are automatic",
			s.Path)
	default:
		c.Message = fmt.Sprintf("step %s is parked: %s", s.Path, s.Why)
	}
	return []why.Cause{s.placed(c)}
}

// gated returns the cause for a fiber that waits at the gate because another fiber of its key has not ended.
func (s *fiberSnapshot) gated(c why.Cause) why.Cause {
	h := s.holder
	c.Type, c.Since = why.QueuedBehind, s.Since
	c.Message = fmt.Sprintf("another fiber of %s runs first, at step %s since %s", s.Key, h.Path, clock(h.Entered))
	c.Evidence["key"], c.Evidence["holder"], c.Evidence["holderStatus"] = s.Key, h.Path, h.Status.String()
	c.Evidence["holderEpoch"] = strconv.FormatUint(h.Epoch, 10)
	if h.Stopping {
		c.Message += "; it was cancelled, but its code does not return"
		s.quote(&c, "The code of a step must return when its context ends. The stack shows where it is.")
	}
	c = s.placed(c)
	c.Until = time.Time{} // Until is the time of the overdue report, not of a retry
	return c
}

// awaiting returns the causes of the waits. If no wait returns one, the cause names the waits by their kind.
func (s *fiberSnapshot) awaiting(c why.Cause) (causes []why.Cause) {
	var silent []string
	for _, w := range s.waits {
		if len(causes) >= maxAsked {
			break
		}
		own := explained(w)
		for _, c := range own {
			causes = append(causes, s.placed(c))
		}
		if len(own) == 0 {
			silent = append(silent, described(w))
		}
	}
	if len(causes) > 0 {
		return causes
	}
	c.Message = fmt.Sprintf("step %s waits for %s", s.Path, strings.Join(silent, ", or "))
	switch {
	case len(silent) == 0 && !s.late.IsZero():
		c.Message = fmt.Sprintf("step %s waits until its deadline", s.Path)
	case len(silent) == 0:
		c.Message = fmt.Sprintf("step %s waits for the end of its context only", s.Path)
	}
	c.Evidence["waits"] = strings.Join(silent, ", ")
	for _, w := range s.waits {
		if p, ok := w.(polled); ok {
			c.Evidence["function"] = functionOf(p.check)
			c.Advice = "The function of flow.Func returns false. Check what it reads. " +
				"A step that calls Fiber.Because before Await says here what is missing."
			break
		}
	}
	return []why.Cause{s.placed(c)}
}

// functionOf returns the name and the place of a function, such as "shop.Declare.func2 (shop.go:31)".
func functionOf(check func(context.Context) (bool, error)) string {
	pc := reflect.ValueOf(check).Pointer()
	fn := runtime.FuncForPC(pc)
	if fn == nil {
		return ""
	}
	file, line := fn.FileLine(pc)
	return fmt.Sprintf("%s (%s:%d)", path.Base(fn.Name()), path.Base(file), line)
}

// explained returns the causes of a wait, none if it panics.
func explained(w Wait) (causes []why.Cause) {
	if e, ok := w.(Explained); ok {
		if protect.Call(func() { causes = e.Why() }) != nil {
			return nil
		}
	}
	return causes
}

func described(w Wait) string {
	switch w := w.(type) {
	case until:
		return "the time " + clock(time.Time(w))
	case polled:
		if w.interval <= 0 {
			return "a condition that is checked when another wait wakes"
		}
		return fmt.Sprintf("a condition that is checked every %v", w.interval)
	case *Signal:
		return "a signal"
	}
	if text, ok := w.(fmt.Stringer); ok {
		s := ""
		if protect.Call(func() { s = text.String() }) == nil {
			return s
		}
	}
	return fmt.Sprintf("a %T", w)
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

package main

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// parse parses a schedule. A schedule that never fires, such as the 31st of February, is an error.
func parse(text string) (cron.Schedule, error) {
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schedule %q: %w", text, err)
	}
	if s.Next(time.Unix(0, 0).UTC()).IsZero() {
		return nil, fmt.Errorf("cannot use the schedule %q: its time never comes", text)
	}
	return s, nil
}

// latest returns the last time of s in (after, until], or the zero time if there is none. It searches backwards from
// until and doubles the distance at each step, so the cost does not grow with the length of the range.
func latest(s cron.Schedule, after, until time.Time) (last time.Time) {
	if every, ok := s.(cron.ConstantDelaySchedule); ok { // its times are relative to the last run
		if passed := until.Sub(after); passed >= every.Delay {
			return until.Add(-passed % every.Delay)
		}
		return time.Time{}
	}
	for window := time.Minute; last.IsZero(); window *= 2 {
		from := until.Add(-window)
		if !from.After(after) {
			from, window = after, 0
		}
		for next := s.Next(from); !next.IsZero() && !next.After(until); next = s.Next(next) {
			last = next
		}
		if window == 0 {
			break
		}
	}
	return last
}

package executor

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation/internal/course"
)

// Repeated tries. Usually a failed try costs two writes: its outcome, and the attempt that follows. A receiver that
// fails at once and a short retry.initialInterval would make dozens of writes a second. So from the second failure on,
// an outcome is not written if the next try is due soon. That try writes the outcome with its own attempt. Within a
// second after the last write it writes nothing, but repeats the attempt that is recorded, with the same key.
//
// A process that is killed loses at most the number of these tries, and the message of the last one. The attempt and
// its key are recorded, so the successor repeats the attempt as it would anyway.

const (
	// repeatsWritten is how long after a write of the status tries repeat the recorded attempt.
	repeatsWritten = time.Second
	// repeatsWait is how soon the next try has to be due for an outcome to wait for it.
	repeatsWait = 500 * time.Millisecond
)

// repeatsSoon reports whether a call has failed again, and its outcome may be written with the next attempt.
func repeatsSoon(en *v1alpha1.WebhookCallStatus, v course.Verdict, now time.Time) bool {
	return en.RetriesCount > 0 && !v.Polled && v.PollURL == "" && !v.State.Terminal() && !v.Next.IsZero() &&
		v.Next.Before(now.Add(repeatsWait))
}

// repeats reports whether the next try of a call repeats the recorded attempt.
func (r *run) repeats(en *v1alpha1.WebhookCallStatus, now time.Time) bool {
	return en != nil && en.AttemptID != "" && en.NextAttemptAt != nil && en.WebhookPollURL == "" &&
		len(r.unsaved) > 0 && r.onlyRepeats() && now.Before(r.written.Add(repeatsWritten))
}

// repeatsDue returns when the changes that are not written have to be. It returns the zero time if that is now, or if
// there are none.
func (r *run) repeatsDue(now time.Time) time.Time {
	if len(r.unsaved) == 0 || !r.onlyRepeats() {
		return time.Time{}
	}
	if due := r.unsaved[0].repeated.Add(repeatsWritten + repeatsWait); now.Before(due) {
		return due
	}
	return time.Time{}
}

// onlyRepeats reports whether all changes that are not written are parts of repeated tries.
func (r *run) onlyRepeats() bool {
	return !slices.ContainsFunc(r.unsaved, func(c unsavedChange) bool { return c.repeated.IsZero() })
}

package executor

import (
	"maps"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// Repeated tries. Usually a failed try costs two writes: its outcome, and the attempt that follows. A receiver that
// fails at once and a short retry.initialInterval would make dozens of writes a second. So from the second failure on,
// an outcome is not written if the next try is due soon. That try writes the outcome with its own attempt. Within a
// second after the last write it writes nothing, but repeats the attempt that is recorded, with the same key. It does
// so for longer while the other operations of its tenant make such writes: all of them make at most ten a second,
// frequent polls included.
//
// A process that is killed loses at most the number of these tries, and the message of the last one. The attempt and
// its key are recorded, so the successor repeats the attempt as it would anyway.

const (
	// repeatsWritten is how long after a write of the status tries repeat the recorded attempt.
	repeatsWritten = time.Second
	// repeatsWait is how soon the next try has to be due for an outcome to wait for it.
	repeatsWait = 500 * time.Millisecond
	// repeatsApart is the time between two writes of a tenant that record only repeated tries, or a poll.
	repeatsApart = 100 * time.Millisecond
)

// repeatsSoon reports whether a call has failed again, and its outcome may be written with the next attempt.
func repeatsSoon(en *v1alpha1.WebhookCallStatus, v course.Verdict, now time.Time) bool {
	return en.RetriesCount > 0 && !v.Polled && v.PollURL == "" && !v.State.Terminal() && !v.Next.IsZero() &&
		v.Next.Before(now.Add(repeatsWait))
}

// mayRepeat reports whether the next try of a call may repeat the recorded attempt.
func (d *edit) mayRepeat(en *v1alpha1.WebhookCallStatus) bool {
	return en != nil && en.AttemptID != "" && en.NextAttemptAt != nil && en.WebhookPollURL == "" &&
		len(d.unsaved) > 0 && d.onlyRepeats()
}

// paces spaces the writes of each tenant that record only repeated tries or a poll. It is safe for concurrent use. The
// zero value is ready to use.
type paces struct {
	mu   sync.Mutex
	last map[fair.Party]time.Time
	most int // the length of last above which take drops expired entries
}

// take reports whether a tenant may make such a write now. If it returns true, the next one has to wait.
func (p *paces) take(of fair.Party, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.last[of]; ok && now.Before(at.Add(repeatsApart)) {
		return false
	}
	if p.last == nil {
		p.last = make(map[fair.Party]time.Time)
	}
	if p.last[of] = now; len(p.last) > p.most {
		maps.DeleteFunc(p.last, func(_ fair.Party, at time.Time) bool { return !now.Before(at.Add(repeatsApart)) })
		p.most = max(64, 2*len(p.last))
	}
	return true
}

// repeatsNow reports whether the next tries of a run repeat the recorded attempts instead of writing new ones. If it
// returns false, the run has taken the turn of its tenant to write.
func (p *paces) repeatsNow(d draft, now time.Time) bool {
	return now.Before(d.written.Add(repeatsWritten)) || !p.take(d.party, now)
}

// repeatsDue returns the time at which the unsaved changes have to be written. It returns the zero time if that is
// now, or if there are none. Each repeated try moves that time, since the write of the next try can include them.
func (p *paces) repeatsDue(d draft, now time.Time) time.Time {
	n := len(d.unsaved)
	if n == 0 || !d.onlyRepeats() {
		return time.Time{}
	}
	if due := d.unsaved[n-1].repeated.Add(repeatsWritten + repeatsWait); now.Before(due) {
		return due
	}
	if !p.take(d.party, now) {
		return now.Add(repeatsApart)
	}
	return time.Time{}
}

// pollWaits reports whether the result of a frequent poll is left to a later write. It is if the tenant has just made
// such a write.
func (p *paces) pollWaits(of fair.Party, en *v1alpha1.WebhookCallStatus, v course.Verdict, now time.Time) bool {
	return v.Polled && !v.State.Terminal() && !v.Next.IsZero() && en.LastPollTimestamp != nil &&
		v.Next.Before(now.Add(pollsWritten)) && !p.take(of, now)
}

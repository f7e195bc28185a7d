package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

const (
	// liveEvery is how often an open page is looked at, where there is the time.
	liveEvery = 2 * time.Second
	// livePart is the part of a core that all open pages together may take.
	livePart = 10
	// maxLive bounds the pages that are kept up to date at a time; others say so and go on by reloading.
	maxLive = 1000
	// keepAlive is how long a stream is silent at most.
	keepAlive = 20 * time.Second
	// liveFor is how long a stream lasts: the browser begins another one.
	liveFor = 30 * time.Minute
)

// live makes the pages that are open, one at a time and no more than livePart allows.
type live struct {
	turn chan struct{} // has one place

	mu   sync.Mutex
	open int
	next time.Time // before that nothing is made
}

func newLive() *live { return &live{turn: make(chan struct{}, 1)} }

func (l *live) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= maxLive {
		return false
	}
	l.open++
	return true
}

func (l *live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// do calls fn when it is its turn.
func (l *live) do(ctx context.Context, fn func() error) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	wait := time.Until(l.next)
	l.mu.Unlock()
	if err := pause(ctx, wait); err != nil {
		return err
	}
	begun := time.Now()
	err := fn()
	took := time.Since(begun)
	l.mu.Lock()
	l.next = begun.Add(livePart * took)
	l.mu.Unlock()
	return err
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stream sends what a page shows, each time it is another than before, as server-sent events: the contents of its main
// element, as a JSON string. The last event is over when the session or its token have ended, and gone when the page cannot
// be shown any more.
func (c *console) stream(w http.ResponseWriter, r *http.Request, v view) {
	rd, err := c.read(r)
	if err != nil {
		status := http.StatusUnauthorized
		if !nobody(err) {
			status = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), status)
		return
	}
	rd.renew(w, r)
	if !c.live.enter() {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer c.live.leave()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	lasts := liveFor
	if rd.session != nil && rd.until.Before(rd.session.Until) {
		lasts = renewAfter // so that the next stream renews the session
	}
	ctx, cancel := context.WithTimeout(httpapi.WithClient(r.Context(), r), lasts)
	defer cancel()
	send := func(text string) error {
		if err := out.SetWriteDeadline(time.Now().Add(keepAlive)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return err
		}
		return out.Flush()
	}
	if send("retry: 5000\n\n") != nil {
		return
	}
	// What is wrong otherwise is told by the page itself, when it is loaded again.
	ended := func(err error) {
		event := "gone"
		if unknown(err) || errors.Is(err, errOver) {
			event = "over"
		}
		_ = send("event: " + event + "\ndata: \n\n") // the reader is gone if this fails
	}
	var last []byte
	var seen uint64
	first := true
	quiet, checked := time.Now(), time.Now()
	for {
		if c.index != nil {
			c.index.touch()
		}
		if err := rd.stays(ctx); err != nil {
			if ctx.Err() == nil {
				ended(err)
			}
			return
		}
		if v.state == nil || first || v.state() != seen {
			if v.state != nil {
				seen = v.state()
			}
			var made []byte
			err := c.live.do(ctx, func() (err error) {
				made, err = c.fragment(ctx, rd, v, r)
				return err
			})
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				ended(err)
				return
			}
			checked = time.Now()
			if !bytes.Equal(made, last) {
				text, err := json.Marshal(string(made))
				if err != nil || send("data: "+string(text)+"\n\n") != nil {
					return
				}
				last, quiet = made, time.Now()
			}
			first = false
		} else if time.Since(checked) > keepAlive/2 { // nothing changes, but the right to see it may
			if err := c.maySee(ctx, rd, v, r); err != nil && (refused(err) || errors.Is(err, errOver) || errors.Is(err, errNothing)) {
				ended(err)
				return
			}
			checked = time.Now()
		}
		if time.Since(quiet) > keepAlive/2 {
			if send(": still here\n\n") != nil {
				return
			}
			quiet = time.Now()
		}
		if pause(ctx, liveEvery) != nil {
			return
		}
	}
}

// fragment makes the contents of the main element of a page.
func (c *console) fragment(ctx context.Context, rd *reader, v view, r *http.Request) ([]byte, error) {
	data, err := c.show(ctx, rd, v, r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = c.pages[v.name].ExecuteTemplate(&b, "main", c.contents(r, rd, v, data))
	return b.Bytes(), err
}

// sharedAnswers keeps what several pages show for a moment, so that it is made once for all of them.
type sharedAnswers struct {
	mu      sync.Mutex
	entries map[string]*cached
}

type cached struct {
	mu    sync.Mutex
	at    time.Time
	value any
}

// cacheFor is for how long.
const cacheFor = time.Second

func newShared() *sharedAnswers { return &sharedAnswers{entries: map[string]*cached{}} }

// shared returns what make made lately under a name; there are few names.
func shared[T any](c *sharedAnswers, name string, make func() T) T {
	c.mu.Lock()
	e := c.entries[name]
	if e == nil {
		e = &cached{}
		c.entries[name] = e
	}
	c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.value == nil || time.Since(e.at) > cacheFor {
		e.value, e.at = make(), time.Now()
	}
	return e.value.(T)
}

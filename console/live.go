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
	// liveEvery is the minimum interval between two updates of an open page.
	liveEvery = 2 * time.Second
	// livePart is the divisor of a core that rendering all open pages may use.
	livePart = 10
	// maxLive bounds the pages with live updates. Others show a notice and reload.
	maxLive = 1000
	// keepAlive bounds the silence of a stream.
	keepAlive = 20 * time.Second
	// liveFor bounds the duration of a stream, after which the browser reconnects.
	liveFor = 30 * time.Minute
)

// live limits the rendering of open pages: one at a time, within livePart.
type live struct {
	turn chan struct{} // capacity 1

	mu   sync.Mutex
	open int
	next time.Time // earliest start of the next rendering
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

// do calls fn in its turn.
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

// pause waits for d, or returns the error of ctx.
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

// stream sends the contents of the page's main element as server-sent events whenever they change, as a JSON string.
// The last event is "over" if the session or its token has ended, and "gone" if the page is no longer available.
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
	// Details are shown when the page is loaded again.
	ended := func(err error) {
		event := "gone"
		if unknown(err) || errors.Is(err, errOver) {
			event = "over"
		}
		_ = send("event: " + event + "\ndata: \n\n") // it fails only if the reader has disconnected
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
		} else if time.Since(checked) > keepAlive/2 { // the content is unchanged, but the right may not be
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

// fragment renders the contents of the main element of a page.
func (c *console) fragment(ctx context.Context, rd *reader, v view, r *http.Request) ([]byte, error) {
	data, err := c.show(ctx, rd, v, r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = c.pages[v.name].ExecuteTemplate(&b, "main", c.contents(r, rd, v, data))
	return b.Bytes(), err
}

// sharedAnswers caches data of several pages briefly.
type sharedAnswers struct {
	mu      sync.Mutex
	entries map[string]*cached
}

type cached struct {
	mu    sync.Mutex
	at    time.Time
	value any
}

// cacheFor is the lifetime of the cache entries.
const cacheFor = time.Second

func newShared() *sharedAnswers { return &sharedAnswers{entries: map[string]*cached{}} }

// shared returns the cached result of make for a name. The set of names is small.
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

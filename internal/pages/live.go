package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/access"
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

// Live updates open pages. It limits the rendering of open pages: one at a time, within livePart.
type Live struct {
	turn chan struct{} // capacity 1

	mu   sync.Mutex
	open int
	next time.Time // earliest start of the next rendering
}

// NewLive returns a Live.
func NewLive() *Live { return &Live{turn: make(chan struct{}, 1)} }

func (l *Live) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= maxLive {
		return false
	}
	l.open++
	return true
}

func (l *Live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// do calls fn in its turn.
func (l *Live) do(ctx context.Context, fn func() error) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	wait := time.Until(l.next)
	l.mu.Unlock()
	if err := Pause(ctx, wait); err != nil {
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

// stream is the source of the updates of one page.
type stream struct {
	lasts  time.Duration
	stays  func(context.Context) error // the session lasts
	allow  func(context.Context) error // the reader has the right
	state  func() uint64               // as in Page
	render func(context.Context) ([]byte, error)
}

// serve sends the contents of a page's main element as server-sent events whenever they change, as a JSON string. The
// last event is "over" if the session or its token has ended, and "gone" if the page is no longer available.
func (l *Live) serve(w http.ResponseWriter, r *http.Request, s stream) {
	if !l.enter() {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer l.leave()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithTimeout(access.WithClient(r.Context(), r), s.lasts)
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
		if Unknown(err) || errors.Is(err, errOver) {
			event = "over"
		}
		_ = send("event: " + event + "\ndata: \n\n") // it fails only if the reader has disconnected
	}
	var last []byte
	var seen uint64
	first := true
	quiet, checked := time.Now(), time.Now()
	for {
		if err := s.stays(ctx); err != nil {
			if ctx.Err() == nil {
				ended(err)
			}
			return
		}
		if s.state == nil || first || s.state() != seen {
			if s.state != nil {
				seen = s.state()
			}
			var made []byte
			err := l.do(ctx, func() (err error) {
				made, err = s.render(ctx)
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
			if err := s.allow(ctx); Refused(err) || errors.Is(err, errOver) || errors.Is(err, ErrNothing) {
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
		if Pause(ctx, liveEvery) != nil {
			return
		}
	}
}

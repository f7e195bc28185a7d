package pages

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/internal/access"
)

// Action is a change that a form of a page requests by POST. The Site checks the token of the form, the session and the
// right of Page before it calls Do. An error of Do is the answer; it may be a Message.
type Action struct {
	Path string // pattern below /console/
	Page Page
	Do   func(ctx context.Context, rd *Reader, r *http.Request, a *Answer) error
}

// AddAction adds an action.
func (s *Site) AddAction(act Action) {
	s.mux.HandleFunc("POST /console/"+act.Path, func(w http.ResponseWriter, r *http.Request) {
		rd, ok := s.enter(w, r)
		if !ok || !fromHere(w, r, rd) {
			return
		}
		ctx := access.WithClient(r.Context(), r)
		err := act.Page.allow(ctx, rd, r)
		if err == nil {
			err = act.Do(ctx, rd, r, &Answer{site: s, page: &act.Page, w: w, r: r, rd: rd})
		}
		if err != nil {
			s.refuse(w, r, rd, &act.Page, err)
		}
	})
}

// Answer is the answer to an action. An action uses it once.
type Answer struct {
	site *Site
	page *Page
	w    http.ResponseWriter
	r    *http.Request
	rd   *Reader
}

// Redirect leads to another page.
func (a *Answer) Redirect(path string) { http.Redirect(a.w, a.r, path, http.StatusSeeOther) }

// Show answers with the page of the action.
func (a *Answer) Show(status int, data any) {
	a.site.Render.page(a.w, status, a.site.view(a.r, a.rd, a.page, data))
}

// Stream answers with the page of the action, where gap is replaced by everything that work sends while it runs. An
// error of send means that the reader has disconnected.
func (a *Answer) Stream(data any, gap string, work func(send func(part string, data any) error)) error {
	var whole bytes.Buffer
	if err := a.site.Render.Part(&whole, a.page.Name, "layout", a.site.view(a.r, a.rd, a.page, data)); err != nil {
		return err
	}
	head, tail, _ := bytes.Cut(whole.Bytes(), []byte(gap))
	h := a.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(a.w)
	write := func(text []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(keepAlive)); err != nil {
			return err
		}
		if _, err := a.w.Write(text); err != nil {
			return err
		}
		return out.Flush()
	}
	if write(head) != nil {
		return nil // the reader has disconnected
	}
	work(func(part string, data any) error {
		var text bytes.Buffer
		if err := a.site.Render.Part(&text, a.page.Name, part, data); err != nil {
			a.site.Log.Error("cannot render a part of a page of the console", "part", part, "error", err)
		}
		return write(text.Bytes())
	})
	_ = write(tail) // it fails only if the reader has disconnected
	return nil
}

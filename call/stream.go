package call

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"
)

// Stream yields the objects of a resource like [List], but decodes each object while the body arrives, so it never
// holds the whole list. It requests the whole list at once unless Policy.PageSize is set. It has no total deadline;
// Policy.Timeout bounds the time without progress. If the body breaks off, Stream requests it again under the policy.
// It then skips objects that it has already yielded, unless they have changed. For that it keeps the uid and version of
// each object. It always requests JSON.
func Stream[T any, PT Object[T]](ctx context.Context, c *Client, r Request, p Policy) iter.Seq2[PT, error] {
	if p.PageSize == 0 {
		p.PageSize = -1
	}
	r.Accept = JSON
	return func(yield func(PT, error) bool) {
		p := p.resolved()
		seen := make(seen)
		var at pager
		stopped := false
		for {
			page, err := streamPage(ctx, c, at.request(r, p), p, func(page *Page, raw []byte) (bool, error) {
				at.check.Object(raw)
				obj := PT(new(T))
				if err := page.decodeItem(raw, obj); err != nil {
					return false, err
				}
				if !seen.before(obj, true) && !yield(obj, nil) {
					stopped = true
				}
				return !stopped, nil
			})
			switch {
			case stopped:
				return
			case at.restart(err):
				continue
			case err != nil:
				yield(nil, at.wrap(r, err))
				return
			case page.next == "":
				return
			}
			if err := at.advance(page); err != nil {
				yield(nil, at.wrap(r, err))
				return
			}
		}
	}
}

// streamPage makes one list request, with retries, and passes each item to item until that returns false.
func streamPage(
	ctx context.Context, c *Client, r Request, p Policy, item func(*Page, []byte) (bool, error),
) (*Page, error) {
	x, err := c.begin(r, p)
	if err != nil {
		return nil, err
	}
	for {
		page, o := x.streamOnce(ctx, item)
		switch o.action {
		case done:
			return page, nil
		case fail:
			return nil, o.err
		}
		if err := x.pause(ctx, o); err != nil {
			return nil, err
		}
		if err := x.resume(ctx, o); err != nil {
			return nil, err
		}
	}
}

// streamOnce makes one try of a stream.
func (x *exchange) streamOnce(ctx context.Context, item func(*Page, []byte) (bool, error)) (*Page, outcome) {
	if err := x.acquire(ctx); err != nil {
		return nil, x.end(ctx, err)
	}
	defer x.used.Release()
	if err := x.fence(); err != nil {
		return nil, x.end(ctx, err)
	}
	a := answer{id: x.tryID(), at: time.Now()}
	sctx, span := x.c.spans.start(ctx, &x.r, a.id, x.pr.sent)
	defer func() { endSpan(ctx, span, &x.r, a) }()
	tctx, cancel := context.WithCancelCause(sctx)
	defer cancel(nil)
	stalled := time.AfterFunc(x.p.Timeout, func() { cancel(&timeoutError{after: x.p.Timeout}) })
	defer stalled.Stop()

	resp, unsent, err := x.c.open(tctx, x.used, &x.r, x.w, a.id)
	a.unsent = unsent
	var page *Page
	var broken error // an error of item, not of the connection
	if err == nil {
		a.code, a.header = resp.StatusCode, resp.Header
		body := &watchedBody{body: resp.Body, stalled: stalled, timeout: x.p.Timeout}
		if a.code < 300 && mediaType(a.header.Get("Content-Type")) == JSON {
			stalled.Stop() // runs during reads of the body, not while the caller processes an item
			page, broken, err = decodeList(body, item)
		} else {
			a.body, err = io.ReadAll(io.LimitReader(body, maxBody))
		}
		resp.Body.Close()
	}
	a.took = time.Since(a.at)
	if err != nil {
		if tctx.Err() != nil {
			err = context.Cause(tctx)
		}
		a.err, a.code = err, 0
	}
	x.c.metrics.ended(&x.r, a.code, a.took)
	switch {
	case broken != nil:
		return nil, x.end(ctx, broken)
	case page != nil && a.err == nil:
		return page, outcome{action: done}
	case a.err != nil && ctx.Err() != nil:
		return nil, x.cancelled(ctx, a)
	}
	o := x.judge(ctx, a)
	if o.action == done {
		return x.whole(ctx, o.answer, item)
	}
	return nil, o
}

// whole passes on the items of a list that is not JSON although JSON was requested.
func (x *exchange) whole(ctx context.Context, a *Answer, item func(*Page, []byte) (bool, error)) (*Page, outcome) {
	page, err := parsePage(a)
	if err != nil {
		return nil, x.end(ctx, err)
	}
	for _, raw := range page.Items {
		if more, err := item(page, raw); err != nil {
			return nil, x.end(ctx, err)
		} else if !more {
			break
		}
	}
	return page, outcome{action: done}
}

// watchedBody cancels the request if a read takes too long.
type watchedBody struct {
	body    io.Reader
	stalled *time.Timer
	timeout time.Duration
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.stalled.Reset(b.timeout)
	n, err := b.body.Read(p)
	b.stalled.Stop()
	return n, err
}

// decodeList reads a list item by item. broken is an error that a retry cannot fix: a wrong kind, or an error of item.
func decodeList(body io.Reader, item func(*Page, []byte) (bool, error)) (page *Page, broken, err error) {
	d := json.NewDecoder(body)
	if err := expect(d, '{'); err != nil {
		return nil, nil, err
	}
	var meta listMeta
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, nil, midway(err)
		}
		var dst any
		switch key {
		case "kind":
			dst = &meta.Kind
		case "apiVersion":
			dst = &meta.APIVersion
		case "metadata":
			dst = &meta.Metadata
		case "items":
			more, broken, err := decodeItems(d, &meta, item)
			if err != nil || broken != nil {
				return nil, broken, err
			}
			if !more {
				return &Page{}, nil, nil
			}
			continue
		default:
			dst = new(json.RawMessage)
		}
		if err := d.Decode(dst); err != nil {
			return nil, nil, midway(err)
		}
	}
	if err := expect(d, '}'); err != nil {
		return nil, nil, err
	}
	page, broken = meta.page()
	return page, broken, nil
}

func decodeItems(d *json.Decoder, meta *listMeta, item func(*Page, []byte) (bool, error)) (
	more bool, broken, err error,
) {
	token, err := d.Token()
	if err != nil {
		return false, nil, midway(err)
	}
	if token == nil {
		return true, nil, nil // "items": null is an empty list
	}
	if token != json.Delim('[') {
		return false, nil, &protocolError{what: "items that are no array"}
	}
	// Servers send kind and apiVersion first. Items before them get no default kind.
	kind := &Page{}
	if meta.Kind != "" {
		if kind, broken = meta.page(); broken != nil {
			return false, broken, nil
		}
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return false, nil, midway(err)
		}
		more, err := item(kind, raw)
		if err != nil || !more {
			return false, err, nil
		}
	}
	return true, nil, expect(d, ']')
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err != nil {
		return midway(err)
	}
	if token != want {
		return &protocolError{what: fmt.Sprintf("%v where %q should be", token, want)}
	}
	return nil
}

// midway converts an EOF within the list into io.ErrUnexpectedEOF.
func midway(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

package source

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/paging"
)

// pageTries bounds the retries of one page after the first. Retrying preserves the staged objects.
const pageTries = 3

// errTokenExpired makes the lister start from the first page.
var errTokenExpired = errors.New("continue token has expired")

// pager fetches lists page by page. It has no state.
type pager struct {
	cfg      *Config
	log      *slog.Logger
	open     openFunc
	backoff  backoff.Policy
	kinds    *kindCheck
	progress listProgress
}

// fetch fetches all pages of one query and stages their objects.
func (p *pager) fetch(ctx context.Context, q query, l *listing) error {
	var check paging.Check
	for {
		before := l.count
		m, err := p.page(ctx, q, l, &check)
		if err != nil {
			if (q.next != "" || q.match == exactly) && isExpired(err) {
				return errors.Join(errTokenExpired, err)
			}
			return err
		}
		l.endPage(m, before, q.next != "" || m.next != "")
		if m.next == "" {
			return nil
		}
		if err := check.Next(m.next); err != nil {
			return &ProtocolError{What: err.Error()}
		}
		q.next, q.version, q.match = m.next, "", ""
	}
}

// page fetches one page. It retries transient failures with the same continue token.
func (p *pager) page(ctx context.Context, q query, l *listing, check *paging.Check) (*listMeta, error) {
	for n := 0; ; n++ {
		before := l.count
		m, err := p.pageOnce(ctx, q, l, check)
		if err == nil || ctx.Err() != nil || q.next == "" && q.match != exactly || n == pageTries ||
			!isTransient(err, l.count > before) {
			return m, err
		}
		wait := p.backoff.Delay(n, p.cfg.Rand)
		if api, ok := errors.AsType[*APIError](err); ok {
			wait = max(wait, min(api.RetryAfter, maxRetryAfter))
		}
		p.log.InfoContext(ctx, "page of a list failed, retrying", "error", err, "wait", wait)
		p.progress.retrying(wait, err)
		_ = backoff.Pause(ctx, wait) // the next attempt reports a cancelled ctx
	}
}

func (p *pager) pageOnce(
	ctx context.Context, q query, l *listing, check *paging.Check,
) (end *listMeta, err error) {
	check.Retry()
	st, err := p.open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer st.close()
	err = st.readList(ctx, p.cfg.ListProgressTimeout, func(e *event) (bool, error) {
		switch e.kind {
		case evOpened:
			p.progress.contact()
			p.progress.listOpened()
		case evObject:
			check.Object(e.obj.Header.Namespace, e.obj.Header.Name)
			l.add(e)
		case evListEnd:
			if err := p.kinds.list(e.list.kind, e.list.apiVersion); err != nil {
				return false, err
			}
			p.progress.contact()
			end = e.list
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return end, nil
}

// isTransient reports whether the same request may soon succeed. A ProtocolError after objects were staged is not
// transient: they may not belong to the list.
func isTransient(err error, staged bool) bool {
	if api, ok := errors.AsType[*APIError](err); ok {
		return api.Code == http.StatusTooManyRequests || api.Code >= http.StatusInternalServerError
	}
	_, malformed := errors.AsType[*ProtocolError](err)
	return !malformed || !staged || errors.Is(err, io.ErrUnexpectedEOF)
}

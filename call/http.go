package call

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/fairlead-io/fairlead/internal/connection"
)

// maxBody bounds the size of one answer, so that a broken server cannot exhaust the memory. Lists are paged.
const maxBody = 512 << 20

// wire is an encoded request, which each try sends.
type wire struct {
	url         string
	body        []byte
	contentType string
}

// answer is the result of one try: either err, or a code with header and body.
type answer struct {
	id     string
	at     time.Time
	took   time.Duration
	code   int
	header http.Header
	body   []byte
	err    error
	// unsent is true if the server certainly has not received the request.
	unsent bool
}

// wire validates and encodes a request to the server with a base URL.
func (r *Request) wire(base *url.URL) (wire, error) {
	method := r.Verb.method()
	if method == "" {
		return wire{}, fmt.Errorf("%w: unknown verb %q", errInvalidRequest, r.Verb)
	}
	if r.Resource.Resource == "" || r.Resource.Version == "" {
		return wire{}, fmt.Errorf("%w: no resource or no version in %q", errInvalidRequest, r.Resource)
	}
	switch r.Verb {
	case VerbGet, VerbUpdate, VerbPatch, VerbApply, VerbDelete:
		if r.Name == "" {
			return wire{}, fmt.Errorf("%w: %s needs a name", errInvalidRequest, r.Verb)
		}
	}
	if r.Verb == VerbPatch && r.PatchType == "" {
		return wire{}, fmt.Errorf("%w: a patch needs its type", errInvalidRequest)
	}
	for _, segment := range []string{r.Namespace, r.Name} {
		if segment != "" {
			if bad := content.IsPathSegmentName(segment); len(bad) > 0 {
				return wire{}, fmt.Errorf("%w: %q %s", errInvalidRequest, segment, bad[0])
			}
		}
	}
	u := r.url(base)
	u.RawQuery = r.Query.Encode()
	body, contentType, err := encode(r)
	if err != nil {
		return wire{}, err
	}
	for _, option := range []string{"dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"} {
		if r.deletes() && len(body) > 0 && r.Query.Has(option) {
			return wire{}, fmt.Errorf("%w: a %s with a body has its options there, and %s in the query",
				errInvalidRequest, r.Verb, option)
		}
	}
	return wire{url: u.String(), body: body, contentType: contentType}, nil
}

// url returns the URL of a request whose names are valid.
func (r *Request) url(base *url.URL) *url.URL {
	segments := make([]string, 0, 8)
	if r.Resource.Group == "" {
		segments = append(segments, "api", r.Resource.Version)
	} else {
		segments = append(segments, "apis", r.Resource.Group, r.Resource.Version)
	}
	if r.Namespace != "" {
		segments = append(segments, "namespaces", url.PathEscape(r.Namespace))
	}
	segments = append(segments, r.Resource.Resource)
	// The name of a create is in its body. Only the create of a subresource has the name of its parent in the path.
	if r.Name != "" && (r.Verb != VerbCreate || r.Subresource != "") {
		segments = append(segments, url.PathEscape(r.Name))
	}
	if r.Subresource != "" {
		segments = append(segments, r.Subresource)
	}
	return base.JoinPath(segments...)
}

// send makes one try with its own timeout. The caller's context is unaffected.
func (c *Client) send(
	ctx context.Context, g *connection.Generation, r *Request, w wire, id string, timeout time.Duration, tries int,
) answer {
	a := answer{id: id, at: time.Now()}
	sctx, span := c.spans.start(ctx, r, id, tries)
	defer func() { endSpan(ctx, span, r, a) }()
	tctx, cancel := context.WithTimeoutCause(sctx, timeout, &timeoutError{after: timeout})
	defer cancel()
	resp, unsent, err := c.open(tctx, g, r, w, id)
	if err == nil {
		a.code, a.header = resp.StatusCode, resp.Header
		a.body, err = readAll(resp)
		resp.Body.Close()
	}
	a.took = time.Since(a.at)
	if err != nil {
		// If tctx ended the try, its cause is the reason, whatever error the transport returned.
		if tctx.Err() != nil {
			err = context.Cause(tctx)
		}
		a.err, a.unsent, a.code = err, unsent, 0
	}
	c.metrics.ended(r, a.code, a.took)
	return a
}

// open sends the request and returns the response with an unread body. unsent is meaningful only with an error.
func (c *Client) open(
	ctx context.Context, g *connection.Generation, r *Request, w wire, id string,
) (_ *http.Response, unsent bool, err error) {
	c.metrics.began()
	// The hooks of httptrace distinguish a request that never got a connection from one that may have been executed.
	var asked, written atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { asked.Store(true) },
		WroteHeaders: func() { written.Store(true) },
	}
	var body io.Reader
	if w.body != nil {
		body = bytes.NewReader(w.body)
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.Verb.method(), w.url, body)
	if err != nil {
		return nil, true, err
	}
	req.Header.Set("Accept", orString(r.Accept, JSON))
	req.Header.Set("Audit-Id", id)
	c.spans.inject(ctx, req.Header)
	if w.body != nil {
		req.Header.Set("Content-Type", w.contentType)
	}
	resp, err := g.Do(req)
	if err != nil {
		if asWrapped, ok := errors.AsType[*url.Error](err); ok {
			err = asWrapped.Err // drop the long URL; the call's error names the object
		}
		return nil, asked.Load() && !written.Load() || isDial(err), err
	}
	c.warnings.log(ctx, resp)
	return resp, false, nil
}

func readAll(resp *http.Response) ([]byte, error) {
	var buf bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= maxBody {
		buf.Grow(int(n) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && n > maxBody {
		err = &protocolError{what: "the answer is longer than " + strconv.Itoa(maxBody) + " bytes"}
	}
	return buf.Bytes(), err
}

func orString(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// transportReason returns a one-word reason for an error of the transport.
func transportReason(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case errors.Is(err, errProtocol), isSyntax(err):
		return "protocol"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return "reset"
	case isTLS(err):
		return "tls"
	case errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	}
	return "no-answer"
}

func isSyntax(err error) bool {
	_, ok := errors.AsType[*json.SyntaxError](err)
	return ok
}

// isTLS reports whether the TLS handshake failed permanently, so that a retry is useless.
func isTLS(err error) bool {
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return verify || record || unknown || host || invalid
}

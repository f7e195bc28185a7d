package hostile_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// connect opens a connection to the HTTP API of the controller.
func (a *tenant) connect() (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(a.ctx, "tcp", a.s.controller.address)
	if a.hit(err) != nil {
		return nil, err
	}
	context.AfterFunc(a.ctx, func() { conn.Close() })
	return conn, nil
}

// held keeps n connections to the HTTP API open, and runs do in each. It replaces those that are closed.
func (a *tenant) held(n int, do func(conn net.Conn)) {
	a.always(n, 1, func(int, int) {
		conn, err := a.connect()
		if err != nil {
			return
		}
		defer conn.Close()
		do(conn)
		_, _ = io.Copy(io.Discard, conn) // until the server closes it, or the attack ends
	})
}

// apiSlow sends bodies byte by byte to callbacks with invalid tokens.
func apiSlow(a *tenant) {
	a.held(300, func(conn net.Conn) {
		// the connection may be closed already
		_, _ = io.WriteString(conn, "POST /callbacks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
		for pause(a.ctx, 500*time.Millisecond) {
			if _, err := io.WriteString(conn, " "); err != nil {
				return
			}
		}
	})
}

// apiIdle connects and sends nothing, half a header, or a single request.
func apiIdle(a *tenant) {
	a.always(16, 100, func(hand, i int) {
		if i >= 120 {
			return
		}
		conn, err := a.connect()
		if err != nil {
			return
		}
		switch (hand + i) % 3 {
		case 0:
			_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		case 1:
			_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		_ = a.hit(err) // hit counts the error
	})
}

// ask sends one request to the HTTP API and reads the answer.
func (a *tenant) ask(method, path, token, body string) {
	req, err := http.NewRequestWithContext(a.ctx, method, "http://"+a.s.controller.address+path, strings.NewReader(body))
	if err != nil {
		a.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if a.hit(err) == nil {
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is reused
		resp.Body.Close()
	}
}

// apiJunkTokens makes the server review invalid tokens.
func apiJunkTokens(a *tenant) {
	a.always(16, 50, func(hand, i int) {
		a.ask(http.MethodGet, "/operations?namespace=victim",
			fmt.Sprintf("junk-%d-%d-%s", hand, i, strings.Repeat("x", 1_000)), "")
	})
}

// apiStreams opens as many event streams as allowed, with the right to do so.
func apiStreams(a *tenant) {
	a.webhook("h", a.hangs(), nil)
	a.call("streamed", "h")
	a.always(24, 100, func(_, i int) {
		if i >= 60 {
			return
		}
		conn, err := a.connect()
		if err != nil {
			return
		}
		_, err = fmt.Fprintf(conn,
			"GET /operations/app/streamed/events?namespace=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
			a.namespace, a.token)
		if a.hit(err) == nil {
			_, _ = bufio.NewReader(conn).ReadString('\n') // the stream is open, or was refused
		}
	})
}

// apiCallbacks repeats reports of known outcomes, with valid tokens and with slightly changed ones.
func apiCallbacks(a *tenant) {
	urls := make(chan string, 100)
	body := `{"url": "{{.CallbackURL}}"}`
	url := a.serve(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(io.LimitReader(r.Body, 4<<10)) // an incomplete body has no URL
		if _, rest, ok := strings.Cut(string(raw), `"url": "`); ok {
			select {
			case urls <- strings.TrimSuffix(rest, `"}`):
			default:
			}
		}
	})
	a.webhook("h", url, func(w *v1alpha1.WebhookSpec) { w.Mode, w.Request.Body = v1alpha1.ModeAsyncCallback, &body })
	a.each(16, func(i int) { a.call(fmt.Sprint("c", i), "h") })
	long := `{"status": "FAILED", "error": "` + strings.Repeat("[masked]", 7_000) + `"}`
	a.always(8, 100, func(_, i int) {
		select {
		case url := <-urls:
			path := strings.TrimPrefix(url, "http://"+a.s.controller.address)
			a.ask(http.MethodPost, path, "", `{"status": "SUCCEEDED"}`)
			a.ask(http.MethodPost, path, "", long)
			a.ask(http.MethodPost, path+"x", "", long)
			urls <- url
		case <-a.ctx.Done():
		}
	})
}

// apiPages lists operations with large request objects, with the right to do so.
func apiPages(a *tenant) {
	a.each(100, func(i int) {
		a.operation(fmt.Sprint("l", i), func(spec *v1alpha1.OperationSpec) { spec.RequestObject = large() })
	})
	a.always(16, 50, func(_, i int) {
		a.ask(http.MethodGet, fmt.Sprintf("/operations?limit=500&namespace=%s", a.namespace), a.token, "")
	})
}

// apiLongPaths sends refused requests whose long paths the server logs.
func apiLongPaths(a *tenant) {
	path := "/operations/" + strings.Repeat("%00", 15_000) + "/x"
	a.always(8, 100, func(int, int) { a.ask(http.MethodGet, path, "", "") })
}

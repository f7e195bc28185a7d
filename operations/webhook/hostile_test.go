package webhook_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// raw serves each connection with f after it has read the head of the request.
func raw(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(soon))
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				f(conn)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return "http://" + listener.Addr().String()
}

// untilClosed blocks until the client hangs up.
func untilClosed(conn net.Conn) { io.Copy(io.Discard, conn) }

func TestHostileReceivers(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		serve   func(net.Conn)
		verdict webhook.Verdict
		status  int
		message string // part of the message
		check   func(*testing.T, webhook.Result)
	}{
		{reason: "hangs", serve: untilClosed, verdict: webhook.Retry, message: "no answer within 100ms"},
		{reason: "hangs in the body", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			untilClosed(c)
		}, verdict: webhook.Retry, message: "no answer within 100ms"},
		{reason: "drips a byte at a time", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
			for range 1000 {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				c.Read(make([]byte, 1))
			}
		}, verdict: webhook.Retry, message: "no answer within 100ms"},
		{reason: "drips headers", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
			for i := range 1000 {
				if _, err := fmt.Fprintf(c, "X-%d: x\r\n", i); err != nil {
					return
				}
				c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				c.Read(make([]byte, 1))
			}
		}, verdict: webhook.Retry, message: "no answer within 100ms"},
		{reason: "resets", serve: func(c net.Conn) {
			c.(*net.TCPConn).SetLinger(0)
		}, verdict: webhook.Retry, message: "no answer: "},
		{reason: "hangs up", serve: func(net.Conn) {}, verdict: webhook.Retry, message: "no answer: "},
		{reason: "cuts the body short", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		}, verdict: webhook.Retry, message: "unexpected EOF"},
		{reason: "speaks something else", serve: func(c net.Conn) {
			fmt.Fprint(c, "SSH-2.0-OpenSSH_9.9\r\n\x00\xff\x1b[31m")
		}, verdict: webhook.Retry, message: "no answer: "},
		{reason: "sends garbage of HTTP", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 999999 \r\n\r\n")
		}, verdict: webhook.Retry, message: "no answer: "},
		{reason: "sends headers without end", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
			line := "X-Long: " + strings.Repeat("x", 8000) + "\r\n"
			for range 10_000 {
				if _, err := io.WriteString(c, line); err != nil {
					return
				}
			}
		}, verdict: webhook.Retry, message: "header"},
		{reason: "sends informational answers without end", serve: func(c net.Conn) {
			for range 100_000 {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
					return
				}
			}
		}, verdict: webhook.Retry, message: "no answer"},
		{reason: "sends 50 MB", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
			chunk := []byte(strings.Repeat("x", 1<<16))
			for range 800 {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		}, verdict: webhook.Succeeded, status: 200, check: func(t *testing.T, r webhook.Result) {
			if !r.Truncated {
				t.Error("it is not marked as truncated")
			}
		}},
		{reason: "sends a gzip bomb", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
			packed := gzip.NewWriter(c)
			zeros := make([]byte, 1<<20)
			for range 200 {
				if _, err := packed.Write(zeros); err != nil {
					return
				}
			}
			packed.Close()
		}, verdict: webhook.Succeeded, status: 200, check: func(t *testing.T, r webhook.Result) {
			if !r.Truncated {
				t.Error("it is not marked as truncated")
			}
		}},
		{reason: "declares gzip and sends something else", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope")
		}, verdict: webhook.Retry, message: "cannot unpack the answer"},
		{reason: "uses an unknown encoding", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nnope")
		}, verdict: webhook.Retry, message: "unknown content encoding"},
		{reason: "nests JSON a hundred thousand deep", serve: func(c net.Conn) {
			body := strings.Repeat("[", 100_000)
			fmt.Fprintf(c, "HTTP/1.1 500 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}, verdict: webhook.Retry, status: 500, message: "answered 500: [[["},
		{reason: "redirects to the metadata service", serve: func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")
		}, verdict: webhook.Failed, status: 302, message: "answered 302"},
		{reason: "writes to the terminal", serve: func(c net.Conn) {
			body := "a\x1b[2J\r\nb\u202ec\xff"
			fmt.Fprintf(c, "HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}, verdict: webhook.Failed, status: 400, message: "answered 400: a [2J b c\ufffd"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			timeout := soon
			if strings.Contains(tc.message, "100ms") {
				timeout = 100 * time.Millisecond
			}
			hook := compile(t, webhook.Definition{RequestTimeout: timeout, Request: webhook.Request{URL: raw(t, tc.serve)}})
			client := newClient(t, webhook.Options{})
			p := permit(t, client, hook)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := p.Call(t.Context(), aCall())
			runtime.ReadMemStats(&after)
			if got.Verdict != tc.verdict || got.StatusCode != tc.status || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %v %d %q", got.Verdict, got.StatusCode, got.Message)
			}
			if tc.status == 0 && !errors.Is(got.Err, webhook.ErrNoAnswer) {
				t.Errorf("%v does not match ErrNoAnswer", got.Err)
			}
			if len(got.Message) > webhook.MaxMessage {
				t.Errorf("a message of %d bytes", len(got.Message))
			}
			if got.Duration > soon {
				t.Errorf("it took %v", got.Duration)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
				t.Errorf("it took %d MB", used>>20)
			}
			if tc.check != nil {
				tc.check(t, got)
			}
		})
	}
}

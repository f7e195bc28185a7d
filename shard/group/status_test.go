package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestMissingRightIsLoggedOnce: tries that get no answer do not make a missing right news again.
func TestMissingRightIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	g, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, Options{
		Namespace: "a", Name: "gateways", Role: "test", Logger: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	denied := fmt.Errorf("cannot write the Lease: %w", ErrForbidden)
	late := fmt.Errorf("cannot write the Lease: %w", context.DeadlineExceeded)
	g.setError("renew", denied)
	g.setError("renew", late) // the term ends
	g.log.Info("left to others", leftBehind(denied)...)
	g.setError("take part", denied)
	if n := strings.Count(said.String(), ErrForbidden.Error()); n != 1 || strings.Contains(said.String(), "deadline") {
		t.Errorf("It is logged %d times:\n%s", n, &said)
	}
	if err := g.Status().Err; !errors.Is(err, ErrForbidden) {
		t.Errorf("The status says %v.", err)
	}
	g.setError("renew", nil)
	g.setError("take part", errRecord) // a finding of a read, for which the right is there
	if err := g.Status().Err; errors.Is(err, ErrForbidden) || !errors.Is(err, errRecord) {
		t.Errorf("With the right the status says %v.", err)
	}
	said.Reset()
	g.setError("renew", late)
	g.log.Info("left to others", leftBehind(late)...)
	if text := said.String(); strings.Count(text, "deadline") != 2 {
		t.Errorf("New trouble is not logged:\n%s", text)
	}
}

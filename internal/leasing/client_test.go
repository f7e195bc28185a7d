package leasing_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test with a server on fake time.
func bubble(t *testing.T, test func(t *testing.T, s *apiserver.Server, c *leasing.Client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testbed.Server(t, apiserver.Options{})
		defer server.Close()
		c, err := leasing.NewClient(server.Config(), "a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		test(t, server, c)
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPreconditions: no write replaces a version that it did not see, and none re-creates a deleted Lease.
func TestPreconditions(t *testing.T) {
	bubble(t, func(t *testing.T, _ *apiserver.Server, c *leasing.Client) {
		own, err := c.Create(t.Context(), &leasing.Lease{ObjectMeta: metav1.ObjectMeta{Name: "m"}})
		check(t, err)
		if _, err := c.Update(t.Context(), &leasing.Lease{ObjectMeta: metav1.ObjectMeta{Name: "m"}}); err == nil {
			t.Error("a Lease that was not read is written")
		}
		mark := own.DeepCopy()
		mark.Annotations = map[string]string{"dead": "another"}
		mark, err = c.Update(t.Context(), mark)
		check(t, err)
		if _, err := c.Update(t.Context(), own); !errors.Is(err, leasing.ErrConflict) {
			t.Errorf("a marked Lease is renewed: %v", err)
		}
		if err := c.Delete(t.Context(), "m", own.UID, own.ResourceVersion); !errors.Is(err, leasing.ErrConflict) {
			t.Errorf("a newer Lease is deleted: %v", err)
		}
		check(t, c.Delete(t.Context(), "m", mark.UID, mark.ResourceVersion))
		if _, err := c.Update(t.Context(), mark); !errors.Is(err, leasing.ErrConflict) && !apierrors.IsNotFound(err) {
			t.Errorf("a Lease that was deleted is renewed: %v", err)
		}
		if err := c.Delete(t.Context(), "m", mark.UID, ""); err != nil {
			t.Errorf("a missing Lease: %v", err)
		}
	})
}

// TestTimeout checks the bound of a request, and that an error contains the advice of Explain, unless it is a conflict.
func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		advice := errors.New("advice")
		c.Explain = func(err error) error { return errors.Join(advice, err) }
		rule := s.On(apiserver.Match{Verb: "get"}, apiserver.Delay(time.Hour))
		begun := time.Now()
		if _, err := c.Get(t.Context(), "m"); err == nil || !errors.Is(err, advice) || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		begun = time.Now()
		if _, err := c.WithTimeout(time.Second).Get(t.Context(), "m"); err == nil || time.Since(begun) != time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		rule.Off()
		l := &leasing.Lease{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		_, err := c.Create(t.Context(), l)
		check(t, err)
		if _, err := c.Create(t.Context(), l); !errors.Is(err, leasing.ErrConflict) || errors.Is(err, advice) {
			t.Errorf("a second one: %v", err)
		}
	})
}

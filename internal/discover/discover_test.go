package discover_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/discover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What client-go says about a discovery that fails goes to the logger, and not past it.
func TestDiscoveryLogsWhereItIsTold(t *testing.T) {
	var past bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&past)
	t.Cleanup(func() { klog.LogToStderr(true) })
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.On(apiserver.Match{}, apiserver.Answer(apiserver.Failure(500)))
	for _, log := range []*slog.Logger{nil, slog.New(slog.NewTextHandler(&past, nil))} {
		var told bytes.Buffer
		if log != nil {
			log = slog.New(slog.NewTextHandler(&told, nil))
		}
		conn, err := connection.New(server.Config(), connection.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		m, err := discover.NewMapper(server.Config(), conn, log)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1"); err == nil {
			t.Error("the server has not been asked")
		}
		klog.Flush()
		if past.Len() > 0 {
			t.Errorf("past the logger: %s", past.String())
		}
		if (log != nil) != strings.Contains(told.String(), "Couldn't get") {
			t.Errorf("with a logger: %v; told %q", log != nil, told.String())
		}
	}
}

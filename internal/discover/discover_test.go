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

// Log messages of client-go about a failed discovery go to the logger of the cluster, and only there.
func TestDiscoveryLogsToTheLogger(t *testing.T) {
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
		var output bytes.Buffer
		if log != nil {
			log = slog.New(slog.NewTextHandler(&output, nil))
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
			t.Error("the server got no request")
		}
		klog.Flush()
		if past.Len() > 0 {
			t.Errorf("logged elsewhere: %s", past.String())
		}
		if (log != nil) != strings.Contains(output.String(), "Couldn't get") {
			t.Errorf("with a logger: %v; logged %q", log != nil, output.String())
		}
	}
}
